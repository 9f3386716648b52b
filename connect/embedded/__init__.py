"""A broker, a catalog and a node from one command."""
