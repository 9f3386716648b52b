"""Operations on connectors without a broker: every answer has the shape of a real one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connect.clock import SystemClock
from connect.errors import Fenced
from connect.operations.connector_operations import NODE_LIMITS, ConnectorOperations
from connect.operations.dead_letter_replay import ReplayChoice
from connect.operations.dead_letter_topic import NoDeadLetterError
from connect.operations.preview.source_sample import Start

OFFSET = 7
"""The only dead letter is at this offset of partition 0."""


class FakeOperations(ConnectorOperations):
    """One dead letter, no state of another sink, an atomic catalog."""

    def __init__(self) -> None:
        super().__init__({}, {}, SystemClock(), NODE_LIMITS)
        self.asked: list[tuple[str, Any]] = []
        self.secret = ""

    def dead_letter_kinds(self, raw: Mapping[str, str]) -> dict[str, Any]:
        """Return the count of one kind."""
        place = {"partition": 0, "offset": OFFSET, "time": "2023-11-14T22:13:20Z", "source": None}
        kind = {
            "stage": "TASK_PUT",
            "exception": None,
            "table": f"db.{self.secret}",
            "source_topic": "t",
            "records": 1,
            "replayed": 0,
            "first": place,
            "last": place,
        }
        return {**_named(raw), "topic": "dlq", "records": 1, "offsets_not_read": 0, "kinds": [kind]}

    def dead_letter(
        self, raw: Mapping[str, str], partition: int, offset: int, *, with_content: bool
    ) -> dict[str, Any]:
        """Return the dead letter, with content as the caller asks."""
        if (partition, offset) != (0, OFFSET):
            raise NoDeadLetterError("no such dead letter")
        text = {"text": f"content {self.secret}"} if with_content else {}
        return {
            **_named(raw),
            "topic": "dlq",
            "partition": partition,
            "offset": offset,
            "time": None,
            "errors": [{"name": "__connect.errors.stage", "text": "TASK_PUT"}],
            "headers": [{"name": f"h{self.secret}", "bytes": 1, **text}],
            "key": {"bytes": None, **({"text": None} if with_content else {})},
            "value": {"bytes": 9, **text},
        }

    def replay(
        self, raw: Mapping[str, str], choice: ReplayChoice, *, is_applied: bool
    ) -> dict[str, Any]:
        """Return the plan of one record."""
        self.asked.append(("replay", choice))
        covered = {"partition": 0, "from_offset": 0, "to_offset": 8}
        return {
            **_named(raw),
            "topic": "dlq",
            "applied": is_applied,
            "ranges": [covered],
            "gone": [],
            "ends": [{"partition": 0, "offset": 8}],
            "offsets_left": 0,
            "targets": {"t": 1},
            "skipped": {},
        }

    def migration(self, raw: Mapping[str, str]) -> dict[str, Any]:
        """Return a report of a first start."""
        self.asked.append(("migration", dict(raw)))
        return {
            **_named(raw),
            "group": f"connect-{raw['name']}",
            "safe": True,
            "groups": [],
            "control_topic": {"0": [0, 0]},
            "starts": {"t-0": {"offset": 0, "from": "earliest"}},
            "tables": [{"name": f"db.{self.secret}", "exists": False, "floors": {}}],
            "findings": [{"code": "no_offsets", "unsafe": False, "text": "a first start"}],
        }

    def catalog_check(
        self, raw: Mapping[str, str], *, races: int, namespace: str | None
    ) -> dict[str, Any]:
        """Return a report of an atomic catalog."""
        self.asked.append(("catalog_check", (dict(raw), races, namespace)))
        return {
            **_named(raw),
            "catalog": "iceberg",
            "kind": "rest",
            "scratch_table": "a.a_0",
            "one_table_atomic": True,
            "several_tables_atomic": True,
            "several_tables_offered": True,
            "refusal": None,
            "not_removed": [],
            "checks": [],
        }

    def preview(self, raw: Mapping[str, str], *, count: int, start: Start) -> dict[str, Any]:
        """Return the preview of one record."""
        self.asked.append(("preview", (dict(raw), count, start)))
        row = {"topic": "t", "partition": 0, "offset": 0, "time": None, "operation": "insert"}
        table = {
            "table": f"db.{self.secret}",
            "exists": False,
            "location": None,
            "columns": [{"name": "id", "type": "long", "required": False, "change": None}],
            "partitioned_by": [],
            "rows": [{**row, "values": {"id": self.secret}}],
        }
        return {
            **_named(raw),
            "complete": True,
            "outcomes": {"written": 1},
            "tables": [table],
            "not_written": [],
        }


class FencedOperations(FakeOperations):
    """Operations whose replay is fenced by another one."""

    def replay(
        self, raw: Mapping[str, str], choice: ReplayChoice, *, is_applied: bool
    ) -> dict[str, Any]:
        """Refuse the replay."""
        del choice, is_applied
        raise Fenced("another replay has begun", connector=raw["name"])


def _named(raw: Mapping[str, str]) -> dict[str, Any]:
    return {"connector": raw["name"]}
