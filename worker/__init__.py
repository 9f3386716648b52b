"""The worker process: Spark, the Arrow pipeline, file writing, announcing."""
