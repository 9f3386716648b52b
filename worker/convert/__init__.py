"""Decoded columns into the columns of a table."""
