"""Reads the source partitions of a task.

``source_log`` knows in Kafka where reading starts and how far it can go. ``source_reader`` turns
ranges of offsets into micro-batches of a ``task_source``. Imports no other folder.

- the two sources: ``source_blocks`` (blocks of records) and ``source_rows`` (rows of Spark)
"""
