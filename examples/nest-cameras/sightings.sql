SELECT device_id, zip_code, room, start_time FROM nest.sightings ORDER BY start_time;
