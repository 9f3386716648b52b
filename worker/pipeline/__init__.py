"""The work of one Spark task: from records to described data files."""
