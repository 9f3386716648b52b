"""Metrics that a node exposes beside its processes' own."""
