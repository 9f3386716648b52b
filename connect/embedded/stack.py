"""``icefloe up``: broker, catalog, warehouse and one node on this machine, from one folder.

Rules of this file:
- Components start in the order of their dependencies and stop in reverse order; the node drains
  before the broker stops.
- All durable data is in the state folder; a second start with it continues.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import httpx
from rich.console import Console

from connect.clock import SystemClock
from connect.config.local_paths import LOCAL_KEY, USERS_FILE
from connect.embedded.broker import Broker
from connect.errors import IcefloeError, RetriableError
from connect.processes.child_process import (
    ChildProcess,
    DirLock,
    free_port,
    require_free_port,
    writable_dir,
)

NODE_START_TIMEOUT_MS = 90_000
DRAIN_GRACE_MS = 30_000
WATCH_INTERVAL_S = 0.5
LAST_WORDS_BYTES = 2_000


class Stack:
    """The embedded stack.

    Args:
        state_dir: everything of it; created when missing.
        broker_port: where Kafka clients connect; 0 takes a free port.
        rest_port: where the REST API listens; 0 takes a free port.
        node_properties: over those that the stack gives its node, e.g. ``spark.master``.
        stopping: ends a wait for the node early; the caller that sets it stops the stack.
        clock: for waiting.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        broker_port: int = 0,
        rest_port: int = 0,
        node_properties: Mapping[str, str] | None = None,
        stopping: threading.Event | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self.state_dir = state_dir
        self._stopping = stopping or threading.Event()
        self._clock = clock or SystemClock()
        self._broker_port = broker_port
        self._rest_port = rest_port
        self._node_properties = dict(node_properties or {})
        self._lock = DirLock("an embedded stack")
        self._node: ChildProcess | None = None
        self.broker: Broker | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Where Kafka clients connect; known once started."""
        assert self.broker is not None
        return self.broker.bootstrap_servers

    @property
    def rest_url(self) -> str:
        """Base of the REST API; known once started."""
        return f"http://127.0.0.1:{self._rest_port}"

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The catalog as a connector names it after ``iceberg.catalog.``; known once started."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.state_dir / 'catalog.db'}",
            "warehouse": f"file://{self.state_dir / 'warehouse'}",
        }

    @property
    def node_log_file(self) -> Path:
        """Where the node writes."""
        return self.state_dir / "node.log"

    @property
    def node_environ(self) -> dict[str, str]:
        """Environment of a node of this stack; known once started."""
        catalog = self.catalog_properties
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("CONNECT_")},
            "ICEFLOE_CATALOG_URI": catalog["uri"],
            "ICEFLOE_CATALOG_WAREHOUSE": catalog["warehouse"],
        }

    def start(self) -> Self:
        """Start everything and return when the REST API answers.

        Raises:
            ConfigError: a port is taken, the folder cannot be written or is in use, no Java.
            RetriableError: a process died or stayed silent, with the end of its log.
        """
        self.start_broker()
        try:
            self.start_node()
            self.wait_for_node()
        except BaseException:
            self.stop()
            raise
        return self

    def start_broker(self) -> None:
        """First half of ``start``: folder, broker, warehouse."""
        self.state_dir = writable_dir(self.state_dir, name="the embedded stack")
        self._lock.acquire(self.state_dir)
        try:
            if self._rest_port:
                require_free_port(self._rest_port, name="the REST API")
            else:
                self._rest_port = free_port()
            (self.state_dir / "warehouse").mkdir(exist_ok=True)
            self.broker = Broker(
                self.state_dir / "broker", port=self._broker_port, clock=self._clock
            ).start()
        except BaseException:
            self._lock.release()
            raise

    def start_node(self) -> None:
        """Second half of ``start``, without waiting: the node begins to start."""
        properties_file = self.state_dir / "node.properties"
        text = "".join(f"{key}={value}\n" for key, value in self._properties().items())
        properties_file.write_text(text, "utf-8")
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "connect.node",
            "--properties",
            properties_file,
        ]
        self._node = ChildProcess(
            "the node",
            command,
            log_file=self.node_log_file,
            environ=self.node_environ,
            clock=self._clock,
        )

    def wait_for_node(self) -> None:
        """Return when the REST API answers and the node says that it is healthy."""
        assert self._node is not None
        self._node.wait_until(self._is_healthy, timeout_ms=NODE_START_TIMEOUT_MS)

    def check(self) -> None:
        """Raise ``RetriableError`` ``child_died`` when the broker or the node has ended."""
        if self.broker is not None and not self.broker.is_running:
            raise RetriableError(
                f"the embedded broker ended with status {self.broker.returncode}; "
                f"see {self.broker.log_file}",
                code="child_died",
            )
        if self._node is not None and not self._node.is_running:
            raise RetriableError(
                f"the node ended with status {self._node.returncode}; the end of "
                f"{self.node_log_file}:\n{self._node.tail()}",
                code="child_died",
            )

    def last_output(self) -> str:
        """The ends of the logs of node, worker and coordinator, each under its file's name."""
        parts = []
        for file in (self.node_log_file, *sorted((self.state_dir / "node").glob("*.log"))):
            if file.is_file():
                text = file.read_bytes()[-LAST_WORDS_BYTES:].decode("utf-8", "replace").strip()
                parts.append(f"--- {file}\n{text}")
        return "\n".join(parts)

    def stop(self) -> None:
        """Drain and end the node, then the broker; everything that must last stays."""
        if self._node is not None:
            self._node.stop(timeout_ms=DRAIN_GRACE_MS + 10_000)
            self._node = None
        if self.broker is not None:
            self.broker.stop()
            self.broker = None
        self._lock.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _properties(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "group.id": "icefloe",
            "listeners": self.rest_url,
            "config.storage.topic": "icefloe-configs",
            "config.storage.replication.factor": "1",
            "status.storage.topic": "icefloe-status",
            "status.storage.replication.factor": "1",
            # connectors name the embedded catalog as ${env:ICEFLOE_CATALOG_URI}
            "config.providers": "env",
            "config.providers.env.class": "EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "ICEFLOE_CATALOG_.*",
            "icefloe.state.dir": str(self.state_dir / "node"),
            "icefloe.drain.grace.ms": str(DRAIN_GRACE_MS),
            **self._node_properties,
            **self._reach(),
        }

    def _reach(self) -> dict[str, str]:
        """Allow tenants only the embedded catalog and warehouse, if the API has users."""
        if LOCAL_KEY in self._node_properties or USERS_FILE not in self._node_properties:
            return {}
        return {LOCAL_KEY: f"{self.state_dir / 'warehouse'},{self.state_dir / 'catalog.db'}"}

    def _is_healthy(self) -> bool:
        if self._stopping.is_set():
            return True  # the wait has ended
        try:
            return httpx.get(f"{self.rest_url}/health", timeout=5).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set while the block runs; main thread only."""
    stopping = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch(stack: Stack, stopping: threading.Event) -> None:
    """Return when asked to stop.

    Raises:
        RetriableError: a part of the stack has ended by itself.
    """
    while not stopping.wait(WATCH_INTERVAL_S):
        stack.check()


def run_up(
    state_dir: Path,
    *,
    broker_port: int = 9092,
    rest_port: int = 8083,
    node_properties: Mapping[str, str] | None = None,
    console: Console | None = None,
    on_ready: Callable[[Stack], None] = lambda _: None,
) -> int:
    """Run the embedded stack until SIGINT or SIGTERM; return the exit status.

    Args:
        state_dir: all durable data; a second run with it continues.
        broker_port: where Kafka clients connect; 0 takes a free port.
        rest_port: where the REST API listens; 0 takes a free port.
        node_properties: over those that the stack gives its node, e.g. ``spark.master``.
        console: for messages to the user.
        on_ready: called once when everything answers.
    """
    console = console or Console(stderr=True)
    with stop_signals() as stopping:
        stack = Stack(
            state_dir,
            broker_port=broker_port,
            rest_port=rest_port,
            node_properties=node_properties,
            stopping=stopping,
        )
        try:
            with console.status("starting broker and node"):
                stack.start()
            console.print(f"kafka      {stack.bootstrap_servers}")
            console.print(f"rest       {stack.rest_url}")
            console.print(f"page       {stack.rest_url}/ui")
            console.print(f"catalog    {stack.catalog_properties['uri']}")
            console.print(f"warehouse  {stack.catalog_properties['warehouse']}")
            console.print(f"logs       {stack.node_log_file}")
            console.print("Ctrl-C drains and ends everything; the data stays.")
            if not stopping.is_set():
                on_ready(stack)
            watch(stack, stopping)
            console.print("draining")
        except IcefloeError as error:
            console.print(f"[red]{error.code}[/red]: ", end="")
            console.print(str(error), markup=False, highlight=False, soft_wrap=True)
            return error.exit_status
        finally:
            stack.stop()
    return 0
