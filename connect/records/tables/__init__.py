"""Schemas of tables from records: inference, creation, evolution, partition specs.

Pure functions over pyiceberg's types; nothing here talks to a catalog.
"""
