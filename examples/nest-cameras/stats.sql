SELECT zip_code, window_start, sightings FROM stats ORDER BY zip_code, window_start
