"""Commits to one Iceberg table.

``committer`` commits the table's share of a round: it chooses the files by ``floor``, and
``commit_attempt`` sends ``snapshots`` until the catalog has one. Imports ``metadata``,
``row_changes`` and ``rules``; knows no other format, and no round of several tables.

- the table between rounds: ``table_memory``
- snapshots that a commit removes: ``table_expiry``
"""
