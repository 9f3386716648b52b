"""Rows into data and delete files: routes, partitions, Parquet."""
