"""Transformations, one module each, and predicates. ``transform_chain`` runs them in order."""
