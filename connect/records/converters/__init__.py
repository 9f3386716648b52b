"""Converters from Kafka's bytes to Connect's data model.

A folder imports only folders below it:

- ``avro``, ``protobuf``: Confluent's converters
- ``json``: JsonConverter, JsonSchemaConverter, the JSON parser
- ``registry``: the base of converters with a schema registry or a schema file
- interface and lookup: ``converter``, ``converter_classes``, ``record_converters``
- plain values, compressed payloads: ``plain_converters``, ``compressed``
- users' functions: ``custom_converters``, ``custom_function``, ``column_converter``
- used by several formats: ``binary_values``, ``payload_errors``
"""

from __future__ import annotations

from connect.records.converters.converter import Converter, Role
from connect.records.converters.converter_classes import converter

__all__ = ["Converter", "Role", "converter"]
