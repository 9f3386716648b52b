"""Keeps what runs in line with what operators request: connectors, layouts, processes.

Begin with ``herder``, which runs one job of ``convergence`` per connector. A folder imports only
folders below it:

- ``requests``: what routes of the REST API call
- ``child_processes``: what runs on this node; starts, stops, reports
- ``cluster``: the nodes, their leader and its duties
- ``deployment``: layouts, fences, where a connector starts and ends
- ``units``: tasks and coordinators of this node: target, observed and published state
- ``offsets``: committed offsets of connectors that do not run, and operators' changes of them
- used by several: ``child_requests``, ``connector_configs``, ``herder_thread``
"""
