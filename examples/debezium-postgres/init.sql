CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, city text);
CREATE TABLE orders (id int PRIMARY KEY, customer_id int NOT NULL, product text, price numeric(8, 2));
CREATE TABLE visits (customer_id int, page text);
INSERT INTO customers VALUES (1, 'Ada', 'Berlin'), (2, 'Bob', 'Lyon'), (3, 'Eve', 'Oslo');
INSERT INTO orders VALUES (10, 1, 'lamp', 19.90), (11, 2, 'desk', 149.00), (12, 3, 'chair', 59.50);
INSERT INTO visits VALUES (1, '/lamps'), (1, '/lamps'), (2, '/desks');
