"""Desired state against actual state: connectors, layouts, children."""
