"""Commits to tables that have a log of their own: Delta tables and Parquet folders.

``log_committer`` commits one table's share of a round to its log. Imports ``rules``, and single
functions of the Iceberg folders.

- Delta: ``delta_files``, ``delta_row_changes``
- Parquet: ``parquet_files``
"""
