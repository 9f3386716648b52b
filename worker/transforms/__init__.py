"""Transformations as operations on columns, one module per family."""
