SELECT count(*) AS requests, count(DISTINCT uuid) AS uuids,
       min(meta.kafka.offset) AS first_offset, max(meta.kafka.offset) AS last_offset,
       count(*) FILTER (date <> left(meta.producer.timestamp, 10)) AS wrong_dates
FROM logs.web_requests;
