"""The Kafka Connect REST API."""
