"""Table schemas from records: type inference, table creation, schema evolution, partition specs.

These are pure functions over pyiceberg's types. They do not access a catalog.
"""
