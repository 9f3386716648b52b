"""The deployment of a connector by the leader: layout, fences, ready record.

``deployer`` does the steps, with the layout that ``layout_planner`` and ``assignment`` plan.
Imports ``offsets``; knows neither the nodes of the cluster nor their processes.

- where a connector ends: ``bounded_runs``
- source topics that were deleted and created again: ``recreated_topics``
"""
