"""The only modules that touch the clients of Kafka, of catalogs and of object stores."""
