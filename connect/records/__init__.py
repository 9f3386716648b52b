"""The record path: converters, transformations, routing and conversion to table columns."""
