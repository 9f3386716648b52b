"""Metrics of every process: the catalogue, and what counts and exposes them."""
