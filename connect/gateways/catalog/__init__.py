"""Iceberg catalogs: clients, their errors, what they may reach."""
