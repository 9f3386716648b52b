"""Commits to the tables of a connector: once, or not at all."""
