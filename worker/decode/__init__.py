"""Bytes into columns: JSON, Avro, Protobuf."""
