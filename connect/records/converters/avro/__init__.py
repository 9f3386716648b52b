"""Avro: Confluent's AvroConverter, and Avro with a schema file.

``avro_schema`` parses schemas, ``avro_datum`` reads data with fastavro, and ``avro_data`` converts
them to Connect's data model. Imports ``registry``, and the JSON parser of ``json``.

- values and defaults: ``avro_values``, ``avro_defaults``
- a reader schema other than the writer's: ``avro_resolution``
- the class: ``avro_converter``
"""
