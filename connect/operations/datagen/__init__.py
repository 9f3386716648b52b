"""Generated records for tests and demonstrations: specification, values, producer."""
