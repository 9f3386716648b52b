"""The child processes of this node: which units they run, and what they report.

``local_units`` starts and stops units so that they match the target state. Requests go through
``child_assignments``; ``child_events`` and ``reconciliation`` apply the reports. Imports ``units``,
and no module that writes layouts or places connectors.

- units that move to this node: ``remote_units``
- the maintenance process: ``maintenance_runs``
"""
