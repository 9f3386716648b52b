"""Bytes into columns: JSON, Avro, Protobuf.

- JSON, scanned one field of all rows at a time: ``scanned_json``, ``json_layout``,
  ``json_cursor``, ``json_scan``, ``json_scalars``
- other JSON, by Arrow's parser: ``json_decoder``, ``json_types``, ``json_maps``,
  ``ambiguous_numbers``, ``byte_prefilters``
- JSON with a schema: ``typed_json``
- Avro and Protobuf: ``avro_columns``, ``protobuf_columns``, ``binary_cursor``,
  ``registered_messages``
- results: ``column_builders``, ``decoded_rows``
"""
