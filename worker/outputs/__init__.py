"""Outputs of a connector beside its tables: rows as JSON messages for Kafka topics."""
