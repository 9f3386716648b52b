"""Takes a connector's tables back to one of its commits."""
