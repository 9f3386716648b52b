"""Values that travel between the driver and the executors."""
