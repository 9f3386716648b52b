"""What Iceberg's action plans for a rewrite: the partitions of a limited one, and its commits.

Rules of this file:
- The action takes the partitions until its limit of files, in the order of hash codes that the JVM
  gives to objects. Each run is a new JVM, which may give the same ones: partitions that get files
  between two runs would be taken every time, and others never.
- So a limited run selects its partitions by a filter. Their order is a hash of the partition and of
  the snapshot that is read: another one in each run, without memory. A partition that cannot be
  rewritten holds no other back.
- A filter selects whole files. One that selects too many of them costs a run bytes, never a row.
- The action counts too many commits: it expects commits also for groups of files that are beyond
  the limit of files, and rounds their number differently when it assigns groups to commits. A table
  with more than ten partitions then appears to have lost commits.

Source:
    Iceberg 1.12.0 ``RewriteDataFilesSparkAction.doExecuteWithPartialProgress`` and
    ``BinPackRewriteFilePlanner.plan``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import structlog
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError

LIMIT: Final = "max-files-to-rewrite"
PARTITIONS_MAX: Final = 500
"""Of a filter, which Iceberg evaluates for each manifest and file."""

log = structlog.get_logger("maintenance")


class RewritePlans:
    """Plans of one rewrite.

    Args:
        gateway: of py4j.
        table: Iceberg's table in the JVM.
        snapshot_id: of the snapshot that is read.
        options: of the action.
    """

    def __init__(
        self, gateway: Any, table: JavaObject, snapshot_id: int, options: Mapping[str, str]
    ) -> None:
        self._jvm = gateway.jvm
        self._table: Any = table
        self._snapshot_id = snapshot_id
        self._options = options

    def filter(self) -> JavaObject:
        """Return the filter of a rewrite: the partitions whose turn it is, or everything.

        Raises:
            Py4JJavaError: the snapshot or its manifests cannot be read.
        """
        expressions = self._jvm.org.apache.iceberg.expressions
        everything = expressions.Expressions.alwaysTrue()
        spec, files_max = self._table.spec(), int(self._options[LIMIT])
        total = dict(self._table.snapshot(self._snapshot_id).summary()).get("total-data-files", "")
        if not spec.isPartitioned() or (total.isdecimal() and int(total) <= files_max):
            return everything
        counts: dict[str, int] = {}
        partitions: dict[str, JavaObject] = {}
        without_limit = {key: value for key, value in self._options.items() if key != LIMIT}
        for group in self._groups(self._plan(everything, without_limit)):
            partition = group.info().partition()
            path = str(spec.partitionToPath(partition))
            counts[path] = counts.get(path, 0) + group.inputFileNum()
            partitions[path] = partition
        if sum(counts.values()) <= files_max:
            return everything
        turn = paths_in_turn(counts, files_max, self._snapshot_id)
        try:
            chosen = _any_of(
                expressions.Expressions, [self._equal(partitions[path]) for path in turn]
            )
            expressions.Binder.bind(self._table.schema().asStruct(), chosen, True)  # noqa: FBT003 - of Java
        except Py4JJavaError as error:  # a value without a literal, such as NaN
            log.info("partitions are rewritten in Iceberg's order", error=str(error.java_exception))
            return everything
        return chosen

    def commits(self, chosen: JavaObject) -> int:
        """Return the number of commits that the rewrite should have made.

        Args:
            chosen: its filter.

        Raises:
            Py4JJavaError: the snapshot or its manifests cannot be read.
        """
        plan = self._plan(chosen, self._options)
        groups = sum(1 for _ in self._groups(plan))
        commits_max = int(self._options["partial-progress.max-commits"])
        groups_of_commit = max(1, -(-int(plan.totalGroupCount()) // commits_max))
        return -(-groups // groups_of_commit)

    def _plan(self, chosen: JavaObject, options: Mapping[str, str]) -> Any:
        java_options = self._jvm.java.util.HashMap()
        for key, value in options.items():
            java_options.put(key, value)
        is_case_sensitive = True
        planner = self._jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(
            self._table, chosen, self._snapshot_id, is_case_sensitive
        )
        planner.init(java_options)
        return planner.plan()

    @staticmethod
    def _groups(plan: Any) -> Iterator[Any]:
        iterator = plan.groups().iterator()
        while iterator.hasNext():
            yield iterator.next()

    def _equal(self, partition: Any) -> JavaObject:
        """Return the filter of one partition."""
        expressions = self._jvm.org.apache.iceberg.expressions.Expressions
        spec, schema = self._table.spec(), self._table.schema()
        of_any_class = self._jvm.java.lang.Class.forName("java.lang.Object")
        matches = expressions.alwaysTrue()
        for position, field in enumerate(spec.fields()):
            transform = field.transform()
            if transform.isVoid():
                continue
            name = schema.findColumnName(field.sourceId())
            is_identity = transform.isIdentity()
            term = expressions.ref(name) if is_identity else expressions.transform(name, transform)
            value = partition.get(position, of_any_class)
            has_value = value is not None
            equal = expressions.equal(term, value) if has_value else expressions.isNull(term)
            matches = getattr(expressions, "and")(matches, equal)
        return matches


def paths_in_turn(counts: Mapping[str, int], files_max: int, snapshot_id: int) -> list[str]:
    """Return the partitions of a limited rewrite.

    Args:
        counts: files to rewrite, by the partition's path.
        files_max: of the rewrite; the last partition may have more.
        snapshot_id: of the snapshot that is read; it decides the order.
    """

    def order(path: str) -> bytes:
        return hashlib.sha256(f"{snapshot_id} {path}".encode()).digest()

    chosen, files = [], 0
    for path in sorted(counts, key=order)[:PARTITIONS_MAX]:
        if files >= files_max:
            break
        chosen.append(path)
        files += counts[path]
    return chosen


def _any_of(expressions: Any, filters: list[JavaObject]) -> JavaObject:
    """Return a filter of the files of any of these; a flat tree, for Java's stack."""
    while len(filters) > 1:
        pairs = zip(filters[::2], filters[1::2], strict=False)
        rest = filters[-1:] if len(filters) % 2 else []
        filters = [getattr(expressions, "or")(one, other) for one, other in pairs] + rest
    return filters[0]
