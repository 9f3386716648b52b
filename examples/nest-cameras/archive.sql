SELECT count(*) AS events, count(DISTINCT "offset") AS offsets,
       count(*) FILTER (json_valid(value)) AS json,
       bool_and(date::DATE BETWEEN current_date - 1 AND current_date) AS written_today
FROM read_parquet('../icefloe-state/warehouse/archive/nest/raw/**/*.parquet', hive_partitioning = true);
