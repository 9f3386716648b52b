"""Outputs of a connector in addition to its tables: rows as JSON messages for Kafka topics."""
