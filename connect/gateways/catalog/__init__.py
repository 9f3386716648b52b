"""Iceberg catalogs: clients, their errors, what they may reach.

Begin with ``catalog``, which the other packages use.

- clients: ``catalog_clients``, ``catalog_libraries``, ``sql_catalog``, ``postgres_wait``
- requests and answers of REST catalogs: ``rest_requests``, ``rest_commits``
- metadata of tables: ``table_metadata``, ``metadata_files``, ``metadata_sizes``, ``metadata_v3``,
  ``table_properties``
- errors and policy: ``catalog_errors``, ``catalog_policy``
- tables without a catalog (Delta, Parquet): ``folder_tables``, ``log_stores``
"""
