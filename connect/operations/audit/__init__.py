"""Audit of a connector: records read = rows in tables + dead letters + dropped records.

It uses only stored data: offsets, control events and table metadata.
"""
