"""Commits to the tables of a connector: once, or not at all.

Begin with ``multi_table_commit`` (the tables of a round) and ``iceberg`` (one of them). The modules
are those that other packages use; a folder imports only folders below it:

- ``operator_changes``: changes of tables at an operator's request
- ``table_logs``: Delta and Parquet, whose tables have a log
- ``iceberg``: one Iceberg table: floor, attempts, snapshots
- ``row_changes``: rows that a round deletes, by copies of data files or by deletion vectors
- ``metadata``: manifests and manifest lists
- ``rules``: what holds for every table format
- opened for a connector: ``table_committers``
- waits between attempts: ``commit_retries``
"""
