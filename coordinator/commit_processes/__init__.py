"""Processes that commit the tables of one connector for its coordinator."""
