"""Metrics that a node exposes in addition to those of its processes."""
