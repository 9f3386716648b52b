SELECT zip_code, count(*) AS cameras, string_agg(room, ', ' ORDER BY room) AS rooms
FROM locations GROUP BY zip_code ORDER BY zip_code
