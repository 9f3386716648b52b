"""Configuration: declared keys, typed configuration, and policies of the operator.

The declarations themselves are in ``keys`` (connectors) and ``node`` (nodes).

- declarations: ``key``
- a connector's configuration, typed: ``connector``, ``start_position``, ``end_position``,
  ``output_config``, ``aggregation``, ``table_formats``, ``source_group``, ``client_overrides``
- policies of the operator: ``local_paths``, ``location_policy``, ``output_topics_policy``,
  ``static_tables_policy``, ``reserved_topics``, ``size_limits``
- secrets: ``placeholders``, ``masking``
- texts: ``properties_file``, ``name_pattern``, ``version_range``, ``spark_master``
- errors: ``invalid_config``
"""
