SELECT 'bank.payments' AS "table", count(*) AS "rows", count(*) FILTER (kind <> 'payment') AS misplaced
FROM bank.payments
UNION ALL
SELECT 'bank.refunds', count(*), count(*) FILTER (kind <> 'refund') FROM bank.refunds
UNION ALL
SELECT 'bank.chargebacks', count(*), count(*) FILTER (kind <> 'chargeback') FROM bank.chargebacks;

SELECT count(*) AS "rows", count(DISTINCT id) AS ids, min(id) AS first, max(id) AS last
FROM (SELECT id FROM bank.payments UNION ALL SELECT id FROM bank.refunds
      UNION ALL SELECT id FROM bank.chargebacks);
