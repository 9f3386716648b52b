"""The units of this node, which are tasks and coordinators: target, observed and published state.

``units`` computes what should run and has what runs. ``status_publisher`` computes the status that
Kafka Connect's API shows, and writes it to the status topic. Imports ``offsets``.

- maintenance that is due: ``maintenance_plan``
"""
