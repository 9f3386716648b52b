"""Declarations of every key, and what is built from them."""
