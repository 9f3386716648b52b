"""Webhook notifications: incidents of the connectors on this node, and their delivery."""
