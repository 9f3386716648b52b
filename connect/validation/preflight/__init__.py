"""What brokers, catalog and registries say to a configuration before anything is started."""
