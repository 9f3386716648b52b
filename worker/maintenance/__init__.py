"""The maintenance process: rewrites a connector's tables with Iceberg's actions for Spark."""
