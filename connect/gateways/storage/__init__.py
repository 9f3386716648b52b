"""Object stores and files, opened with what the configuration allows."""
