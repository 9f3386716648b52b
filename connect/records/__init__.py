"""What happens to a record, record by record: the definition of its meaning."""
