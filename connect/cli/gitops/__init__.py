"""Commands that manage connectors on a node, including connectors defined in files."""
