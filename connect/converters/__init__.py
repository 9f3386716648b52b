"""From Kafka bytes to values of the Connect data model."""
