"""Changes of Iceberg tables at an operator's request, while no round commits to them.

``floor_rebase`` and ``valid_through_reset`` are requests of their own; a rewind uses
``empty_snapshot`` and ``table_result``. Imports ``iceberg`` and the folders below it.
"""
