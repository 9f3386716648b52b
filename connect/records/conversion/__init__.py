"""Conversion of Connect values to values of Iceberg table columns."""
