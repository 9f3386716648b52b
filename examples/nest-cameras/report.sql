SELECT _key AS device, room, start_time AS last_person
FROM alerts ORDER BY device
