"""Keys of a connector's configuration, each declared once."""
