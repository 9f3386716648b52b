"""Control topic and source offsets, as node, worker and coordinator use them.

- control topic: ``control_feed``, ``control_topic``, ``control_offsets``, ``lso_monitor``
- source offsets: ``source_partitions``, ``source_floor``, ``start_offsets``, ``offset_plan``,
  ``offset_loss``, ``source_end``
- who may write: ``fencing``, ``java_sink_members``
- tables: ``snapshot_ancestry``, ``log_transactions``, ``maintenance_tag``
"""
