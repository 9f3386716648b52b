"""Keeps what runs in line with what operators request: connectors, layouts, processes.

Begin with ``herder``, which runs one job of ``convergence`` per connector, and ``node_herder``,
which answers the REST API. A folder imports only folders below it:

- ``requests``: requests about stored connectors
- ``child_processes``: what runs on this node; starts, stops, reports
- ``cluster``: the nodes, their leader and its duties
- ``deployment``: layouts, fences, where a connector starts and ends
- ``units``: tasks and coordinators of this node: target, observed and published state
- ``offsets``: committed offsets of connectors that do not run, and operators' changes of them
- used by several: ``connector_configs``, ``herder_thread``, ``periodic_jobs``, ``request_errors``
"""
