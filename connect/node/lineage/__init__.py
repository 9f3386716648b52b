"""Lineage events of the connectors whose coordinator runs on this node, and their delivery."""
