"""What a connector would make of records, without writing anything."""
