BEGIN;
UPDATE customers SET city = 'Paris' WHERE id = 2;
DELETE FROM orders WHERE customer_id = 3;
DELETE FROM customers WHERE id = 3;
UPDATE orders SET id = 13 WHERE id = 11;
INSERT INTO orders VALUES (14, 1, 'sofa', 499.00);
INSERT INTO visits VALUES (1, '/sofas');
COMMIT;
