"""The embedded stack: a broker, a catalog and a node, started by one command."""
