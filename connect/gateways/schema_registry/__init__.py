"""The schema registry's client, its options and its tokens."""
