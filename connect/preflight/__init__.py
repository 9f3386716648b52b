"""What broker and catalog say to a configuration before anything is started with it."""
