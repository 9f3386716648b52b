"""The ``Sql`` transformation without Spark: its query taken apart and checked."""
