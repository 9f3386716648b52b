"""The ``Sql`` transformation in Spark."""
