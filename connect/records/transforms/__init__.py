"""Transformations and predicates: one module each, declared once, chained by ``chain``."""
