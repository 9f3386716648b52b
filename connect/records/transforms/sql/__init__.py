"""The ``Sql`` transformation: parsing and validation of the query without Spark."""
