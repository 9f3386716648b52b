SELECT count(*) AS readings, count(DISTINCT id) AS ids, min(id) AS first, max(id) AS last,
       count(DISTINCT sensor) AS sensors
FROM iot.readings;
