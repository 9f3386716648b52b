"""Where a new connector starts, as an operator meets it."""

from __future__ import annotations

import json

import pytest

from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

T0_MS = 1_767_323_045_000


def _table() -> str:
    return f"start.{unique_name('t').replace('-', '_')}"


def test_a_connector_starts_at_named_offsets_and_at_an_instant(running: RunningStack) -> None:
    """A named offset precedes the instant; earlier records are in no table."""
    name, topic, table = (
        unique_name("starts"),
        running.topic("start", 2, retention_ms="-1"),
        _table(),
    )
    running.table(table)
    for n in range(4):
        at_ms = T0_MS + n * 1000
        running.produce(topic, *numbered(n, 1), partition=0, timestamp=at_ms)
        running.produce(topic, *numbered(10 + n, 1), partition=1, timestamp=at_ms)
    config = running.connector(topics=topic, iceberg__tables=table)
    config["icefloe.start.timestamp"] = "2026-01-02T04:04:07+01:00"  # that of the third record
    config["icefloe.start.offsets"] = json.dumps({topic: {"0": 3}})
    running.create(name, config)
    assert sorted(row["id"] for row in running.rows(table, 3, name)) == [3, 12, 13]
    running.delete(name)


def test_a_start_position_is_fixed_when_the_connector_is_created(
    running: RunningStack,
) -> None:
    """An instant in the future is the end at the creation, not when a task starts.

    The task fails because its table is missing, and has stored no offset until then.
    """
    name, topic, table = unique_name("future"), running.topic("start"), _table()
    running.produce(topic, *numbered(0, 5))
    config = running.connector(topics=topic, iceberg__tables=table)
    config["icefloe.start.timestamp"] = "2100-01-01T00:00:00Z"
    running.create(name, config)
    assert "table_missing" in running.trace(name)
    running.produce(topic, *numbered(5, 5))
    running.table(table)
    assert sorted(row["id"] for row in running.rows(table, 5, name)) == [*range(5, 10)]
    running.delete(name)
