SELECT id, name, city FROM pgshop.customers ORDER BY id;

SELECT id, customer_id, product, price FROM pgshop.orders ORDER BY id;

SELECT page, count(*) AS visits FROM pgshop.visits GROUP BY page ORDER BY page
