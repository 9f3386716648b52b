"""Commits to the tables of a connector: once, or not at all.

Begin with ``committer`` (one Iceberg table) and ``multi_table_commit`` (the tables of a round).

- which files: ``floor``, ``file_selection``, ``held_files``, ``content_files``
- attempts: ``commit_attempt``, ``commit_retries``, ``commit_rules``, ``snapshots``, ``head_files``
- manifests: ``manifests``, ``prepared_manifests``, ``avro_files``
- deleted rows: ``row_removal``, ``row_change``, ``source_files``, ``copied_rows``,
  ``copied_columns``, ``vector_rows``, ``deletion_vectors``, ``former_deletes``, ``row_lineage``
- Delta and Parquet, whose tables have a log: ``log_committer``, ``log_formats``, ``delta_files``,
  ``delta_row_changes``, ``parquet_files``
- connectors without tables: ``no_tables``
- expiry: ``table_expiry``
- an operator's requests: ``floor_rebase``, ``valid_through_reset``, ``empty_snapshot``,
  ``table_result``
- opened and reported: ``table_committers``, ``table_descriptions``, ``lost_records``
"""
