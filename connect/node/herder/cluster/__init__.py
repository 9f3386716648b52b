"""The nodes of a cluster, and what their leader does.

``election`` finds out whether this node leads. ``leader`` then places connectors on nodes and
repeats the work of a leader. Imports ``deployment``.

- members and placements: ``cluster``, ``cluster_members``
"""
