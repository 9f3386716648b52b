SELECT 'sales.debit' AS "table", count(*) AS "rows", count(*) FILTER (type <> 'debit') AS misplaced
FROM sales.debit
UNION ALL
SELECT 'sales.credit', count(*), count(*) FILTER (type <> 'credit') FROM sales.credit
UNION ALL
SELECT 'sales.bank_slip', count(*), count(*) FILTER (type <> 'bank_slip') FROM sales.bank_slip;

SELECT count(*) AS "rows", count(DISTINCT id) AS ids, min(id) AS first, max(id) AS last
FROM (SELECT id FROM sales.debit UNION ALL SELECT id FROM sales.credit
      UNION ALL SELECT id FROM sales.bank_slip);
