SELECT id, status FROM shop.orders ORDER BY id;
