"""Values that every part passes on: records and layouts; no client, no configuration."""
