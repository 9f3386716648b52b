"""Schema registry client, its options and its tokens."""
