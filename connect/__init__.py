"""Configuration, records, gateways, herder, REST and command line of Icefloe.

``docs/explanation/architecture.md`` has a table of the folders, from the highest layer to the lowest.
"""
