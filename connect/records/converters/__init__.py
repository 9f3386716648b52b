"""Converters from Kafka's bytes to Connect's data model.

- interface and lookup: ``converter``, ``converter_classes``, ``record_converters``
- JSON: ``json_converter``, ``json_text``, ``json_schema``
- JSON Schema: ``json_schema_converter``, ``json_schema_data``
- Avro: ``avro_converter``, ``avro_schema``, ``avro_datum``, ``avro_values``, ``avro_defaults``,
  ``avro_resolution``, ``avro_data``
- Protobuf: ``protobuf_converter``, ``protobuf_schema``, ``protobuf_types``, ``protobuf_data``
- schemas of a registry: ``registered_schemas``, ``wire_format``, ``compressed``,
  ``binary_values``, ``payload_errors``
- plain values: ``plain_converters``
- users' functions: ``custom_converters``, ``custom_function``, ``column_converter``
"""

from __future__ import annotations

from connect.records.converters.converter import Converter, Role
from connect.records.converters.converter_classes import converter

__all__ = ["Converter", "Role", "converter"]
