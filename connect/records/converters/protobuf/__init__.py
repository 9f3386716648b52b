"""Protobuf: Confluent's ProtobufConverter.

``protobuf_schema`` makes descriptors of a registry's schemas, ``protobuf_data`` converts messages
to Connect's data model. Imports ``registry``.

- well-known types, options of fields: ``protobuf_types``
- the class: ``protobuf_converter``
"""
