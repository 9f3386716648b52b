"""A real node notifies a real HTTP server of a task that fails."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.running_node import RunningNode
from tests.support.stack import Topics
from tests.support.webhook_server import WebhookServer

pytestmark = pytest.mark.kafka


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    """The operator's endpoint."""
    server = WebhookServer()
    yield server
    server.close()


def test_a_failed_task_is_notified_and_its_restart_too(
    tmp_path: Path, kafka_properties: dict[str, str], topics: Topics, server: WebhookServer
) -> None:
    """One message each; a server that does not answer delays no request; no secret in the log."""
    node = RunningNode(
        tmp_path,
        kafka_properties["bootstrap.servers"],
        **{
            "icefloe.notifications.webhook.url": server.url,
            "icefloe.notifications.webhook.authorization": "Bearer hook-secret-79",
            "icefloe.notifications.delay.ms": "0",
        },
    )
    failure = {"code": "configuration", "retriable": False, "trace": "ConfigError: wrong\nstack"}
    (tmp_path / "fail-c-0").write_text(json.dumps(failure))
    server.may_answer.clear()
    try:
        node.start()
        node.put("c", topics.create("notified"))
        node.wait_until(lambda: node.status("c") == ("RUNNING", ["FAILED"]))
        node.wait_until(lambda: server.authorizations)
        assert node.status("c") == ("RUNNING", ["FAILED"])
        server.may_answer.set()
        node.wait_until(lambda: server.messages)
        assert node.call("POST", "/connectors/c/tasks/0/restart").status_code == 204
        node.running("c", tasks=1)
        node.wait_until(lambda: server.messages[-1]["status"] == "resolved")
        firing, resolved = server.messages[0], server.messages[-1]
        assert (firing["reason"], firing["task"]) == ("ConfigError: wrong", 0)
        assert firing["key"] == resolved["key"] == f"{node.group_id}/c/task_failed/0"
        sent = 'icefloe_notifications_total{outcome="sent"} 2.0'
        # the server keeps a message before its answer reaches the node, which counts it then
        node.wait_until(lambda: sent in node.call("GET", "/metrics").text)
        assert set(server.authorizations) == {"Bearer hook-secret-79"}
        assert node.end() == 0
        assert "hook-secret" not in (tmp_path / "node.log").read_text()
    finally:
        node.close()
