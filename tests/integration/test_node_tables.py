"""What waits for the operator, as a node tells it: status, REST extension, command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from connect.embedded.broker import Broker
from tests.support.running_node import RunningNode
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka

FAILED = {
    "table": "db.t",
    "code": "table_missing",
    "message": "it is gone",
    "retriable": False,
    "announcements": 1,
    "files": 2,
    "records": 30,
}


@pytest.fixture
def node(broker: Broker, topics: Topics, tmp_path_factory: Any) -> Iterator[RunningNode]:
    """A node with one connector, of which one table has failed."""
    node = RunningNode(tmp_path_factory.mktemp("node-tables"), broker.bootstrap_servers)
    (node.folder / "failed-tables.json").write_text(json.dumps([FAILED]))
    node.start()
    node.put("one", topics.create("orders"))
    node.running("one", 1)
    node.wait_until(lambda: node.call("GET", "/icefloe/v1/connectors/one/tables").json()["tables"])
    yield node
    node.close()


def test_a_failed_table_is_in_status_list_and_command_line(node: RunningNode) -> None:
    """The connector continues; trace, extension and ``icefloe tables`` name the table."""
    status = node.wait_until(
        lambda: (
            (body := node.call("GET", "/connectors/one/status").json())["connector"].get("trace")
            and body
        )
    )
    assert status["connector"]["state"] == "RUNNING"
    cause = "db.t: table_missing: it is gone; 2 files with 30 records wait"
    assert status["connector"]["trace"].splitlines()[0] == cause
    listed = node.call("GET", "/icefloe/v1/connectors/one/tables").json()["tables"]
    assert listed == [{**FAILED, "state": "FAILED"}]
    code, displayed = node.icefloe("tables", "list", "one")
    assert code == 0
    assert "db.t  FAILED  2 files with 30 records wait, waits for retry or skip" in displayed
    code, displayed = node.icefloe("tables", "skip", "one", "db.t")
    assert code == 2
    assert "would be given up" in displayed
    assert not [c for c in node.commands("coordinator", "one") if c["op"] == "decide"]


def test_a_decision_is_sent_to_the_coordinator_and_its_answer_returned(node: RunningNode) -> None:
    """By POST and by ``icefloe tables skip --yes``; a refusal is an error text."""
    skipped = {"announcements": 1, "files": 2, "records": 30, "paths": ["a.parquet", "b.parquet"]}
    waiting = {"announcements": 0, "files": 0, "records": 0}
    decided = {"state": "done", "table": "db.t", "skipped": skipped, "waiting": waiting}
    (node.folder / "decided.json").write_text(json.dumps(decided))
    code, displayed = node.icefloe("tables", "skip", "one", "db.t", "--yes")
    assert code == 0
    assert displayed.splitlines()[:2] == ["a.parquet", "b.parquet"]
    assert "2 files with 30 records given up, 0 files" in displayed
    (command,) = [c for c in node.commands("coordinator", "one") if c["op"] == "decide"]
    assert (command["table"], command["action"]) == ("db.t", "skip")
    (node.folder / "decided.json").write_text(json.dumps({**decided, "state": "busy"}))
    answer = node.call("POST", "/icefloe/v1/connectors/one/tables/db.t/retry")
    assert answer.status_code == 409
    assert "being committed" in answer.json()["message"]
    assert node.call("POST", "/icefloe/v1/connectors/two/tables/db.t/retry").status_code == 404
    assert node.call("POST", "/icefloe/v1/connectors/one/tables/db.t/drop").status_code == 404
    code, displayed = node.icefloe("tables", "retry", "two", "db.t")
    assert code == 1
    assert "two not found" in displayed
