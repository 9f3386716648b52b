"""Rows of data files that the deletes of a round reach: found by key, and removed in two ways."""
