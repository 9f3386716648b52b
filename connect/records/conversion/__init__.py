"""Values of Connect's data model into the columns of an Iceberg table."""
