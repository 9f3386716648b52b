"""Checks of a configuration against brokers, catalog and schema registries."""
