"""A bounded run on several nodes: tables, dead letters, empty partitions, and a lost node."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest

from connect.embedded.stack import Stack
from connect.model.layout import TopicPartition
from tests.faults.checkers import Log, check_rows
from tests.faults.extra_nodes import ExtraNodes
from tests.faults.payments_producer import DEAD_LETTER
from tests.faults.payments_stack import (
    DEAD_LETTER_TOPIC,
    GROUP,
    NAME,
    NODE,
    TABLES,
    TOPIC,
    PaymentsStack,
    connector,
)
from tests.faults.readback import read_dead_letters, read_log, read_tables

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

EMPTY_TOPIC = "payments-empty"
RECORDS = 60_000
RECORDS_PER_S = 20_000


class _BoundedStack(PaymentsStack):
    """A stack whose connector is created STOPPED: records are produced before its first start."""

    def put(self, config: dict[str, str]) -> None:  # type: ignore[override]  # of this test only
        """Create the connector."""
        self.admin.ensure_topic(EMPTY_TOPIC, 3, replication_factor=1)
        body = {"name": NAME, "config": config, "initial_state": "STOPPED"}
        url = f"{self.stack.rest_url}/connectors"
        httpx.post(url, json=body, timeout=60).raise_for_status()


def _first(log: Log, partitions: np.ndarray, counts: dict[int, int]) -> Log:
    """Return the first records of each partition."""
    chosen = log.sequences < np.array([counts[p] for p in partitions.tolist()])
    return Log(*(getattr(log, name)[chosen] for name in Log.__slots__))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("is_node_killed", [False, True])
def test_every_task_of_a_bounded_run_completes(tmp_path: Path, *, is_node_killed: bool) -> None:
    """Its rows and dead letters are those before the end, each once; later records stay unread."""
    end = {"tasks.max": "5", "icefloe.end": "latest", "topics": f"{TOPIC},{EMPTY_TOPIC}"}
    run = _BoundedStack(Stack(tmp_path / "state", node_properties=NODE))
    extra_nodes = ExtraNodes(run)
    try:
        run.start(connector(**end))
        producer = run.producer(RECORDS_PER_S)
        producer.start(RECORDS, RECORDS)
        producer.finish()
        counts = {n: partition.sent for n, partition in enumerate(producer.partitions)}
        places = [TopicPartition(TOPIC, number) for number in counts]
        ends = run.admin.high_watermarks(places)
        for name in ("second", "third"):
            extra_nodes.start(name)
        run.wait_until(
            lambda: sum(bool(node["ready"]) for node in extra_nodes.view()["nodes"]) == 3,
            "three nodes",
        )
        run.call("PUT", "resume")
        run.wait_until(lambda: len(run.status()["tasks"]) == 5, "five tasks")
        producer.start(RECORDS, RECORDS)  # behind the end
        if is_node_killed:
            run.wait_until(lambda: extra_nodes.unit_count("second"), "work on the second node")
            extra_nodes.processes["second"].kill()
        run.wait_until(
            lambda: Counter(t["state"] for t in run.status()["tasks"]) == {"COMPLETED": 5},
            "the end of the run",
        )
        producer.finish()
        assert run.status()["connector"]["state"] == "RUNNING"
        assert run.admin.committed(GROUP, places) == ends
        log, _ = read_log(run.stack.bootstrap_servers, [TOPIC])
        wanted = _first(log, log.partitions, counts)
        tables = read_tables("demo", run.stack.catalog_properties, TABLES)
        for number, table in enumerate(tables):
            assert not check_rows(wanted.of(number), table.rows), table.name
        dead_letters = read_dead_letters(run.stack.bootstrap_servers, DEAD_LETTER_TOPIC)
        assert not check_rows(wanted.of(DEAD_LETTER), dead_letters)
        assert len(dead_letters.partitions)
    finally:
        extra_nodes.stop()
        run.close()
