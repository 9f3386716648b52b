"""Kafka's clients: transactions, reading, administration, group membership."""
