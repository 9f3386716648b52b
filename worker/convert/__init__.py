"""Conversion of decoded columns into the columns of a table."""
