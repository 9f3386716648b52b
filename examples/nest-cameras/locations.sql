SELECT device_id, zip_code, room FROM nest.locations ORDER BY device_id;
