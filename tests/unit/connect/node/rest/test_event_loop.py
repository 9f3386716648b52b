"""No request does work on the event loop: while one hangs, others are answered.

The operations are those of the application, so a new one is tested too.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from connect.clock import SystemClock
from connect.node.node_requests import NodeInfo
from connect.node.rest.api_route import ApiRoute
from connect.node.rest.app import create_app
from connect.node.rest.dependencies import RequestHandlers
from connect.node.rest.log_levels import LogLevels
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.operations import FakeOperations
from tests.support.fakes.rest_server import Reply, RestServer

# They read what the node has in memory.
QUICK = {
    "check_started",
    "coordinator_process",
    "definition",
    "names",
    "node_to_ask",
    "nodes",
    "status",
    "sums",
    "task_configs",
}
CONFIG = {
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}


OFFSETS = [
    {"partition": {"kafka_topic": "orders", "kafka_partition": 0}, "offset": {"kafka_offset": 1}}
]
OF_CONNECTOR = "/icefloe/v1/connectors/{name}/"
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/connectors"): {"name": "new", "config": CONFIG},
    ("PUT", "/connectors/{name}/config"): CONFIG,
    ("PATCH", "/connectors/{name}/config"): {"topics": "others"},
    ("PATCH", "/connectors/{name}/offsets"): {"offsets": OFFSETS},
    ("PUT", "/connector-plugins/{plugin}/config/validate"): {"name": "new", **CONFIG},
    ("PUT", "/admin/loggers/{logger}"): {"level": "INFO"},
    ("POST", OF_CONNECTOR + "offsets/plan"): {"to": "earliest"},
    ("POST", OF_CONNECTOR + "control/rebase"): {},
    ("POST", OF_CONNECTOR + "control/vtts/reset"): {"reason": "a test"},
    ("POST", OF_CONNECTOR + "rewind"): {"timestamp_ms": 1},
    ("POST", OF_CONNECTOR + "dead-letters/replay"): {},
    ("POST", OF_CONNECTOR + "migration/check"): CONFIG,
    ("POST", OF_CONNECTOR + "catalog/check"): {"config": CONFIG},
    ("POST", OF_CONNECTOR + "preview"): {"config": CONFIG},
}
# They ask nothing that may hang.
AT_ONCE = {
    ("GET", "/connectors"),
    ("GET", "/connectors/{name}"),
    ("GET", "/connectors/{name}/config"),
    ("GET", "/connectors/{name}/status"),
    ("GET", "/connectors/{name}/tasks"),
    ("POST", "/connectors/{name}/tasks"),
    ("GET", "/connectors/{name}/tasks/{task}/status"),
    ("GET", "/connector-plugins"),
    ("GET", "/connector-plugins/{plugin}/config"),
    ("GET", "/admin/loggers"),
    ("GET", "/admin/loggers/{logger}"),
    ("PUT", "/admin/loggers/{logger}"),  # with the scope "worker"
    ("GET", "/health"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/icefloe/v1/openapi.json"),
    ("GET", "/icefloe/v1/overview"),
    ("GET", OF_CONNECTOR + "config"),
    ("GET", "/ui"),
    ("GET", "/ui/{file}"),
}


@dataclass
class Hanging:
    """An object whose methods hang, unless they are quick.

    Attributes:
        inner: the object.
        calls: name of each called method, and whether it was called on an event loop.
        was_called: a method hangs.
        may_answer: lets methods answer.
    """

    inner: Any
    calls: list[tuple[str, bool]] = field(default_factory=list)
    was_called: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def __getattr__(self, name: str) -> Any:
        """Return a method that hangs."""
        value = getattr(self.inner, name)
        return self._hanging(name, value) if callable(value) else value

    def _hanging(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            is_on_loop = _is_on_loop()
            self.calls.append((name, is_on_loop))
            if name not in QUICK and not is_on_loop:
                self.was_called.set()
                assert self.may_answer.wait(60)
            return method(*args, **more)

        return call


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class HangingNode:
    """The API of a node whose herder and operations hang."""

    def __init__(self) -> None:
        levels = LogLevels(SystemClock())
        herder = FakeHerder(levels)
        herder.create("red", {**CONFIG, "name": "red"}, initial_state=None)
        self.herder, self.operations = Hanging(herder), Hanging(FakeOperations())
        self.operations.was_called = self.herder.was_called
        self.operations.may_answer = self.herder.may_answer
        part: Any = self.herder
        operations: Any = self.operations
        handlers = RequestHandlers(part, part, part, part, part, part, herder.handlers.store)
        self.app = create_app(
            handlers, NodeInfo("http://n:1", "c"), levels, connector_operations=operations
        )

    @property
    def calls(self) -> list[tuple[str, bool]]:
        """Methods called, and whether on the event loop."""
        return [*self.herder.calls, *self.operations.calls]


OPERATIONS = [
    (method, route.path)
    for route in HangingNode().app.routes
    if isinstance(route, ApiRoute)
    for method in sorted(route.methods)
]


@pytest.fixture
def node() -> Iterator[HangingNode]:
    """A node; nothing hangs after the test."""
    node = HangingNode()
    yield node
    node.herder.may_answer.set()


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_others_are_answered_while_a_request_hangs(
    node: HangingNode, method: str, path: str
) -> None:
    """Broker, catalog, or another node does not answer; states and probes are shown."""
    values = {"name": "red", "task": "0", "table": "db.t", "plugin": "IcebergSink"}
    values |= {"partition": "0", "offset": "0"}
    target = path.format(**values, logger="root", file="app.js")
    body = BODIES.get((method, path))
    replies: list[Reply] = []
    with RestServer(node.app) as server:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        content = b"" if body is None else json.dumps(body).encode()
        hung = threading.Thread(
            target=lambda: replies.append(server.send(method, target, content, headers))
        )
        hung.start()
        while hung.is_alive() and not node.herder.was_called.wait(0.01):
            pass
        is_hanging = hung.is_alive()
        for other in ("/health", "/connectors", "/connectors/red/status"):
            assert server.send("GET", other).status == 200
        assert hung.is_alive() == is_hanging  # it hung all the time, or was answered at once
        node.herder.may_answer.set()
        hung.join(60)
    assert len(replies) == 1
    assert is_hanging == ((method, path) not in AT_ONCE), replies[0]  # a new one needs a body?
    assert [name for name, is_on_loop in node.calls if is_on_loop and name not in QUICK] == []
