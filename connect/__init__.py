"""Configuration, records, gateways, herder, REST and command line of Icefloe.

``docs/explanation/architecture.md`` has a table of the folders, from the highest to the
lowest layer.
"""
