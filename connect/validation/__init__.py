"""Validation and parsing of configurations: single keys, combinations, plugins, live checks."""
