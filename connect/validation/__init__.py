"""Validation and parsing of configurations: single keys, combinations, plugins, live checks.

Begin with ``validate`` (all errors, for the REST API) and ``parse`` (the typed configuration).

- single keys: ``key_checks``, ``alias_keys``, ``plugins``
- combinations of keys: ``config_view``, ``cross_key_rules``, ``format_rules``, ``output_rules``,
  ``query_rules``, ``aggregate_rules``, ``topic_rules``, ``output_checks``
- warnings: ``ignored_keys``, ``change_stream_traps``
- policies of the operator: ``client_policy``, ``access_check``
- secrets: ``providers``, ``secret_renewal``
- catalog properties: ``catalog_view``
"""
