"""Keys of the node's properties file, and its typed configuration."""
