"""Configuration, records, gateways, herder, REST and command line of Icefloe."""
