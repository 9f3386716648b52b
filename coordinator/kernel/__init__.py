"""The commit protocol of one connector: pure, without client, clock or randomness."""
