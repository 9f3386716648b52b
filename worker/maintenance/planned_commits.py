"""How many commits a rewrite with partial progress should have made.

Iceberg's action counts too many: it expects commits also for groups of files that are beyond the
limit of files, and rounds their number differently when it assigns groups to commits. A table with
more than ten partitions then appears to have lost commits.

Source:
    Iceberg 1.11.0 ``RewriteDataFilesSparkAction.doExecuteWithPartialProgress``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import JavaObject


def planned_commits(
    gateway: Any, table: JavaObject, snapshot_id: int, options: Mapping[str, str]
) -> int:
    """Plan a rewrite again, and return its number of commits.

    Args:
        gateway: of py4j.
        table: Iceberg's table in the JVM.
        snapshot_id: of the snapshot that was read.
        options: of the action.

    Raises:
        Py4JJavaError: the snapshot or its manifests cannot be read.
    """
    jvm = gateway.jvm
    java_options = jvm.java.util.HashMap()
    for key, value in options.items():
        java_options.put(key, value)
    every_row, is_case_sensitive = jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue(), True
    planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(
        table, every_row, snapshot_id, is_case_sensitive
    )
    planner.init(java_options)
    plan = planner.plan()
    groups, iterator = 0, plan.groups().iterator()
    while iterator.hasNext():
        iterator.next()
        groups += 1
    commits_max = int(options["partial-progress.max-commits"])
    groups_of_commit = max(1, -(-int(plan.totalGroupCount()) // commits_max))
    return -(-groups // groups_of_commit)
