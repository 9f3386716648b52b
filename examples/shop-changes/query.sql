SELECT id, name FROM shop.customers ORDER BY id;

SELECT id, items FROM shop.baskets ORDER BY id;
