"""Removal of the rows that a round deletes from an Iceberg table's data files.

``row_removal`` is called by a commit. It begins a ``row_change`` and has two writers:
``copied_rows`` (copy-on-write) and ``vector_rows`` (deletion vectors). Imports ``metadata`` and
``rules``; ``coordinator.row_deletes`` finds the rows.

- data files that are read: ``source_files``
- copies: ``copied_columns``
- delete files and vectors: ``deletion_vectors``, ``former_deletes``
"""
