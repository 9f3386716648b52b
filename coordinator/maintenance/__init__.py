"""Maintenance that the coordinator does along with its commits."""
