"""Connectors kept in files, and compared with what a node runs."""
