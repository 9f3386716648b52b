SELECT id, name, city FROM mariashop.customers ORDER BY id;

SELECT id, customer_id, product, price FROM mariashop.orders ORDER BY id;

SELECT page, count(*) AS visits FROM mariashop.visits GROUP BY page ORDER BY page
