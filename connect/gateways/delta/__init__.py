"""Delta tables: their log, their schemas, and their object stores."""
