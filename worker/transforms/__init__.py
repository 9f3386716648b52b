"""Transformations by columns, one module each, named as in ``connect.records.transforms``."""
