"""The units of this node, which are tasks and coordinators: target, observed and published state.

``target_units`` computes what should run, ``units`` has what runs, and ``status_publisher`` writes
it to the status topic. Imports ``offsets``.

- maintenance that is due: ``maintenance_plan``
- the status as Kafka Connect's API shows it: ``connector_status``
"""
