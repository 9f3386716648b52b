"""Declarations of the keys of connector configurations."""
