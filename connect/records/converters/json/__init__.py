"""JSON: Kafka Connect's JsonConverter, and Confluent's JsonSchemaConverter.

``json_text`` is the bounded parser, which other packages use too. Imports ``registry``.

- Connect schemas in envelopes: ``json_converter``, ``json_schema``
- JSON Schema: ``json_schema_converter``, ``json_schema_data``
"""
