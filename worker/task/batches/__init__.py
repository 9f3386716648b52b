"""Processes the micro-batches of a task.

``batch_processor`` writes each batch with ``batch_runner``, checks the limits of dead letters and
enters the batch into the ledger. ``row_distribution`` distributes rows by table before they are
written. Imports ``source``, ``tables`` and ``dead_letters``; knows no rounds.
"""
