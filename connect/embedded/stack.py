"""``icefloe up``: broker, catalog, warehouse and one node on this machine, from one folder.

Rules of this file:
- Components start in dependency order and stop in reverse order; the node drains before the
  broker stops.
- All durable data is in the state folder; another start with the same folder continues with it.
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
from connect.config.node.node_environment import without_properties
from connect.embedded.broker import Broker
from connect.errors import IcefloeError, RetriableError
from connect.gateways.public_trust import public_trust
from connect.processes.child_process import (
    ChildProcess,
    DirLock,
    free_port,
    require_free_port,
    writable_dir,
)

NODE_START_TIMEOUT_MS = 180_000
DRAIN_GRACE_MS = 30_000
WATCH_INTERVAL_S = 0.5
LOG_TAIL_BYTES = 2_000


class Stack:
    """The embedded stack.

    Args:
        state_dir: folder of all data; created if missing.
        broker_port: of the Kafka listener; 0 selects a free port.
        rest_port: of the REST API; 0 selects a free port.
        node_properties: override the stack's properties of the node, e.g. ``spark.master``.
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
        """Value for ``bootstrap.servers``; valid after the start."""
        assert self.broker is not None
        return self.broker.bootstrap_servers

    @property
    def rest_url(self) -> str:
        """Base URL of the REST API; valid after the start."""
        return f"http://127.0.0.1:{self._rest_port}"

    @property
    def catalog_properties(self) -> dict[str, str]:
        """The catalog's ``iceberg.catalog.*`` keys without the prefix; valid after the start."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.state_dir / 'catalog.db'}",
            "warehouse": f"file://{self.state_dir / 'warehouse'}",
        }

    @property
    def node_log_file(self) -> Path:
        """The log file of the node."""
        return self.state_dir / "node.log"

    @property
    def node_environ(self) -> dict[str, str]:
        """Environment of the stack's node; valid after the start."""
        catalog = self.catalog_properties
        return {
            **without_properties(os.environ),
            "ICEFLOE_CATALOG_URI": catalog["uri"],
            "ICEFLOE_CATALOG_WAREHOUSE": catalog["warehouse"],
        }

    def start(self) -> Self:
        """Start broker and node; return when the node is healthy.

        Raises:
            ConfigError: a port is in use, the folder is not writable or in use, or Java is missing.
            RetriableError: a process ended or did not answer; the message has the end of its log.
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
        """Create the state folder and warehouse, and start the broker: first half of ``start``."""
        self.state_dir = writable_dir(self.state_dir, name="the embedded stack")
        self._lock.acquire(self.state_dir)
        try:
            if self._rest_port:
                require_free_port(self._rest_port, name="the REST API", option="--rest-port")
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
        """Start the process of the node without waiting for it: second half of ``start``."""
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
        """Return when the node's health endpoint answers 200."""
        assert self._node is not None
        self._node.wait_until(self._is_healthy, timeout_ms=NODE_START_TIMEOUT_MS)

    def check(self) -> None:
        """Raise ``RetriableError`` ``child_died`` if the broker or the node has ended."""
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
        """Return the ends of the logs of node, worker and coordinator, with the file names."""
        parts = []
        for file in (self.node_log_file, *sorted((self.state_dir / "node").glob("*.log"))):
            if file.is_file():
                text = file.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
                parts.append(f"--- {file}\n{text}")
        return "\n".join(parts)

    def stop(self) -> None:
        """Drain and stop the node, then stop the broker; durable data is kept."""
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
            answer = httpx.get(f"{self.rest_url}/health", timeout=5, verify=public_trust())
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set during the block; main thread only."""
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
    """Check the stack's processes until ``stopping`` is set.

    Raises:
        RetriableError: the broker or the node has ended.
    """
    while not stopping.wait(WATCH_INTERVAL_S):
        stack.check()


def run_up(
    state_dir: Path,
    *,
    broker_port: int = 9092,
    rest_port: int = 8083,
    console: Console | None = None,
    on_ready: Callable[[Stack], None] = lambda _: None,
) -> int:
    """Run the embedded stack until SIGINT or SIGTERM; return the exit status.

    Args:
        state_dir: folder of all durable data; another run with it continues.
        broker_port: of the Kafka listener; 0 selects a free port.
        rest_port: of the REST API; 0 selects a free port.
        console: for messages to the user.
        on_ready: called once when the node is healthy.
    """
    console = console or Console(stderr=True)
    with stop_signals() as stopping:
        stack = Stack(
            state_dir,
            broker_port=broker_port,
            rest_port=rest_port,
            stopping=stopping,
        )
        try:
            with console.status("starting broker and node"):
                stack.start()
            for title, address in (
                ("kafka", stack.bootstrap_servers),
                ("rest", stack.rest_url),
                ("page", f"{stack.rest_url}/ui"),
                ("catalog", stack.catalog_properties["uri"]),
                ("warehouse", stack.catalog_properties["warehouse"]),
                ("logs", stack.node_log_file),
            ):
                # one line each, so that a long path can be copied
                console.print(f"{title:<10} {address}", markup=False, soft_wrap=True)
            console.print("Stop with Ctrl-C; the data is kept.")
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
