"""The Spark session and what is set for it."""
