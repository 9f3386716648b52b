"""Keys of the node's own properties file, and its typed configuration."""
