SELECT order_number, order_date, purchaser, quantity, product_id, _cdc.op AS op, _cdc.source AS source
FROM inventory.orders ORDER BY order_number;
