"""Changes of Iceberg tables at an operator's request, while no round commits to them.

``valid_through_reset`` is a request of its own; a rewind uses ``empty_snapshot`` and
``table_result``. Imports ``iceberg`` and the folders below it.
"""
