"""A node process with stub children, for tests of the node without Spark and catalog."""

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import httpx

from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.state.compacted_topic import read_all
from connect.state.status_state import StatusState
from connect.state.topic_records import decode
from tests.support.command_line import icefloe
from tests.support.node_starter import STARTER, NodeProcess
from tests.support.patient_client import PatientTransport
from tests.support.pauses import growing_pauses
from tests.support.stored_layouts import read_layouts

TIMEOUT_S = 150
FOLDER = Path(__file__).parents[1]


class RunningNode:
    """A node process with stub children, and its API."""

    script: ClassVar[str] = "stub_node"
    process: NodeProcess

    def __init__(self, folder: Path, bootstrap_servers: str, **properties: str) -> None:
        self.folder = folder
        self.group_id = properties.get("group.id", folder.name)
        self.kafka = {"bootstrap.servers": bootstrap_servers}
        self.properties = {
            **self.kafka,
            "group.id": self.group_id,
            "config.storage.topic": f"{self.group_id}-config",
            "config.storage.replication.factor": "-1",
            "status.storage.topic": f"{self.group_id}-status",
            "status.storage.replication.factor": "-1",
            "listeners": "http://127.0.0.1:0",
            "icefloe.state.dir": str(folder / "state"),
            "icefloe.metadata.refresh.ms": "300",
            "icefloe.task.restart.backoff.ms": "200",
            "icefloe.drain.grace.ms": "30000",
            **properties,
        }
        self.url = ""
        self.api = httpx.Client(timeout=TIMEOUT_S, transport=PatientTransport())

    def launch(self, *dies: str) -> None:
        """Start it without waiting; ``dies`` names the point at which it kills itself."""
        file = self.folder / "node.properties"
        file.write_text("".join(f"{k}={v}\n" for k, v in self.properties.items()))
        (self.folder / "port").unlink(missing_ok=True)
        environ = {**os.environ, "STUB_DIR": str(self.folder), "PYTHONPATH": str(FOLDER.parent)}
        self.process = STARTER.start(self.script, [str(file), *dies], self.folder, environ)

    def start(self, *dies: str) -> None:
        """Start it and wait until it is healthy."""
        self.launch(*dies)
        self.wait_until(lambda: (answer := self.health()) is not None and answer.status_code == 200)

    def health(self) -> httpx.Response | None:
        """Return the answer of the health endpoint; None without one."""
        port = self.folder / "port"
        if not port.exists() or not (number := port.read_text()):
            return None
        self.url = f"http://127.0.0.1:{number}"
        try:
            return self.api.get(f"{self.url}/health")
        except httpx.TransportError:
            return None

    def wait_until(self, is_so: Callable[[], Any]) -> Any:
        """Wait for it."""
        deadline, pauses = time.monotonic() + TIMEOUT_S, growing_pauses()
        while not (value := is_so()):
            is_late = self.process.poll() is not None or time.monotonic() > deadline
            assert not is_late, (self.folder / "node.log").read_text()[-5000:]
            next(pauses)
        return value

    def put(self, name: str, topics: str, **more: str) -> httpx.Response:
        """PUT a connector's configuration."""
        config = {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": topics,
            "iceberg.tables": "db.t",
            "iceberg.control.topic": f"{self.group_id}-control",
            "iceberg.catalog.type": "sql",
            "iceberg.catalog.uri": "${env:NOT_RESOLVED}",
            "iceberg.catalog.warehouse": "/nowhere",
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        if "topics.regex" in config:
            del config["topics"]
        return self.api.put(f"{self.url}/connectors/{name}/config", json=config)

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request."""
        return self.api.request(method, f"{self.url}{path}", **more)

    def icefloe(self, *arguments: str) -> tuple[int, str]:
        """Run a command against this node; return its exit status and output."""
        done = icefloe(*arguments, "--server", self.url)
        return done.status, done.stdout + done.stderr

    def status(self, name: str) -> tuple[str, list[str]]:
        """States of connector and tasks; ("UNKNOWN", []) while the node does not know it."""
        answer = self.call("GET", f"/connectors/{name}/status")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return "UNKNOWN", []
        body = answer.json()
        return body["connector"]["state"], [task["state"] for task in body["tasks"]]

    def running(self, name: str, tasks: int) -> None:
        """Wait until this node runs the whole connector and has sent it to the children.

        Units that are not yet sent to the children already have the status RUNNING.
        """
        self.wait_until(lambda: self.status(name) == ("RUNNING", ["RUNNING"] * tasks))
        self.wait_until(lambda: self._is_handed_over(name))

    def _is_handed_over(self, name: str) -> bool:
        layout, _ = self.layouts(name)
        wanted = {None, *(task for task, partitions in enumerate(layout.tasks) if partitions)}
        reported = {
            message.get("task"): message["layout"]["layout"]
            for child in ("worker", "coordinator")
            for message in self.commands(child, name)
            if message["op"] in {"start", "layout"}
        }
        return all(reported.get(unit) == layout.number for unit in wanted)

    def commands(self, process: str, connector: str | None = None) -> list[dict[str, Any]]:
        """Return the commands that the child received, in order."""
        file = self.folder / f"{process}.jsonl"
        lines, _, _ = (file.read_text() if file.exists() else "").rpartition("\n")
        reported = [json.loads(line) for line in lines.splitlines()]
        return [m for m in reported if connector is None or m.get("connector") == connector]

    def layouts(self, name: str) -> tuple[Any, int | None]:
        """Layout and ready number as a task reads them."""
        return read_layouts(self.kafka, self.properties["config.storage.topic"], name)

    def stored_tasks(self, name: str) -> dict[int, str]:
        """Return the states of a connector's tasks as another program reads the status topic."""
        return {t: s.state for t, s in self.statuses().tasks(name).items()}

    def statuses(self) -> StatusState:
        """Read the status topic to its end."""
        statuses = StatusState()
        admin = KafkaAdmin(self.kafka)
        reader = LogReader({**self.kafka, "fetch.max.wait.ms": "10"})
        try:
            topic = self.properties["status.storage.topic"]
            apply = partial(_apply, statuses)
            read_all(admin, reader, topic, apply, clock=SystemClock())
        finally:
            reader.close()
            admin.close()
        return statuses

    def has_stopped(self, name: str) -> bool:
        """Return whether no task of a stopped connector can write any more."""
        layout, ready = self.layouts(name)
        return layout.tasks == () and ready == layout.number

    def end(self) -> int:
        """Send SIGTERM; return the exit status."""
        self.process.terminate()
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        """Kill it if it still runs."""
        if hasattr(self, "process") and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.api.close()


def _apply(state: StatusState, key: str, value: bytes | None) -> None:
    state.apply(key, decode(value))
