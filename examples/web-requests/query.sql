SELECT date, host, path, status, kafka_partition, kafka_offset
FROM web.requests ORDER BY kafka_offset;
