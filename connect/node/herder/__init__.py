"""Target state against actual state: connectors, layouts, child processes.

Begin with ``herder``, which runs one job of ``convergence`` per connector. State flows in one
direction:

- requests of the REST API: ``node_herder``, ``stored_connectors``, ``stopped_connectors``,
  ``views``, ``request_errors``, ``connector_status``
- operators' changes of a stopped connector: ``offset_changes``, ``offset_events``, ``rebase``,
  ``rewind``
- target state: ``connector_configs``, ``target_units``, ``start_positions``, ``bounded_runs``,
  ``recreated_topics``
- jobs of a connector: ``herder``, ``herder_thread``, ``convergence``, ``layout_planner``,
  ``assignment``, ``deployer``
- units of this node: ``units``, ``local_units``, ``remote_units``, ``coordinator_processes``
- requests to child processes, and their reports: ``child_assignments``, ``child_requests``,
  ``child_events``, ``reconciliation``, ``coordinator_reports``
- published state: ``status_publisher``
- the cluster: ``election``, ``leader``, ``leader_duties``, ``cluster``, ``cluster_members``,
  ``sole_member``, ``offset_keeper``
- maintenance of tables: ``maintenance_plan``, ``maintenance_runs``
- used by several: ``periodic_jobs``
"""
