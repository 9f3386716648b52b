"""The start of a node: its configuration, its socket and its child processes.

Rules of this file:
- The child processes start before the node imports its other modules. The imports take seconds,
  and so does the start of Spark's JVM. ``tests/unit/connect/node/test_node_start.py`` checks that
  this module imports little.
- The state folder is locked and the address is in use before a child starts: a second node with
  the same configuration ends without side effects.
- Events of the children wait until the herder exists.
- The node reads its environment in this file only.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from connect import logs
from connect.backoff import BackoffPolicy
from connect.clock import Clock, SystemClock
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError, ExitStatus
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.ambient_variables import forget_credentials
from connect.jvm.java import find_java
from connect.logs import logger
from connect.node.standalone_connectors import StandaloneConnector, are_completed
from connect.processes.child_process import DirLock, writable_dir
from connect.processes.coordinator_names import COORDINATOR, coordinator_names
from connect.processes.signals import on_signals
from connect.processes.start_modules import NOT_NEEDED, start_module
from connect.processes.supervisor import ChildSpec, SupervisedChild

COMMANDS: Mapping[str, Sequence[str]] = {
    # -P: Python must not run a file of that name in the working folder instead
    name: (sys.executable, "-P", "-m", name)
    for name in ("worker", "coordinator")
}
OnEvent = Callable[[str, dict[str, Any]], None]
OPEN_FILES: Final = 65_536
"""What a process asks for: room for several hundred connectors."""

_log = logger("node")


class BufferedEvents:
    """Passes events of the children on; keeps them, in order, until it knows to whom."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self._receiver: OnEvent | None = None

    def __call__(self, child: str, event: dict[str, Any]) -> None:
        """Pass an event of a child on, or keep it."""
        with self._lock:
            if self._receiver is None:
                self._waiting.append((child, event))
                return
        self._receiver(child, event)

    def deliver_to(self, receiver: OnEvent) -> None:
        """Pass all events that wait to the receiver, and every later event."""
        with self._lock:
            for child, event in self._waiting:
                receiver(child, event)
            self._waiting.clear()
            self._receiver = receiver


@dataclass(frozen=True, slots=True)
class NodeStart:
    """A node whose child processes have been started.

    Attributes:
        environ: the process's environment; children inherit it.
        state_lock: holds the state folder.
        listening: the socket of the REST API; None when the node has none.
        children: child processes by name; they have been started.
        child_events: what they send.
        stopping: set when the node must drain and end.
    """

    config: NodeConfig
    environ: Mapping[str, str]
    clock: Clock
    state_lock: DirLock
    listening: socket.socket | None
    children: Mapping[str, SupervisedChild]
    child_events: BufferedEvents
    stopping: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(
        cls,
        config: NodeConfig,
        environ: Mapping[str, str],
        *,
        commands: Mapping[str, Sequence[str]] = COMMANDS,
        clock: Clock | None = None,
    ) -> Self:
        """Lock the state folder, listen and start the children.

        Args:
            config: the node's configuration.
            environ: the process's environment.
            commands: how the children are started, by kind.
            clock: time and identities; the system's if None.

        Raises:
            ConfigError: ``state_in_use``, ``dir_unwritable``, ``listener``.
        """
        clock = clock or SystemClock()
        raise_open_files_limit()
        install(AccessPolicy.of(config.properties))
        state_lock = DirLock("a node")
        state_lock.acquire(writable_dir(config.state_dir, name="icefloe.state.dir"))
        listening = listen(config) if config.has_rest else None
        events = BufferedEvents()
        children = {
            name: SupervisedChild(
                child_spec(name, command, config, environ),
                on_event=events,
                clock=clock,
                silence_ms_max=config.values["icefloe.child.silence.max.ms"],
                policy=_restarts(config),
            )
            for name, command in _each_process(commands, config)
        }
        for child in children.values():
            child.start()
        return cls(config, environ, clock, state_lock, listening, children, events)


def _each_process(
    commands: Mapping[str, Sequence[str]], config: NodeConfig
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield name and command of each child."""
    for kind, command in commands.items():
        is_many = kind == COORDINATOR
        count = config.values["icefloe.coordinator.processes"] if is_many else 1
        names = coordinator_names(count) if is_many else (kind,)
        yield from ((name, command) for name in names)


def child_spec(
    name: str, command: Sequence[str], config: NodeConfig, environ: Mapping[str, str]
) -> ChildSpec:
    """Return how a child of the node is started; its log is a file or the node's own output."""
    folder = None if config.is_log_on_stdout else config.state_dir.resolve()
    return ChildSpec(
        name=name,
        command=command,
        log_file=None if folder is None else folder / f"{name}.log",
        properties=config.properties,
        environ=environ,
    )


def _restarts(config: NodeConfig) -> BackoffPolicy:
    values = config.values
    return BackoffPolicy(
        first_ms=min(100, values["icefloe.task.restart.backoff.ms"]),
        longest_ms=min(30_000, values["icefloe.task.restart.backoff.max.ms"]),
    )


def listen(config: NodeConfig) -> socket.socket:
    """Return the listening socket of the first of ``listeners``.

    Raises:
        ConfigError: ``listener``, the address cannot be used.
    """
    host, port, _ = config.listener
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server_socket = socket.create_server((host, port), family=family, backlog=512)
        # accepted connections inherit it; without it each answer waits 40 ms for the client's
        # ACK, as head and body are two writes
        server_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as e:
        why = os.strerror(e.errno) if e.errno else str(e)
        raise ConfigError(
            f"cannot listen at {config.listener.url}: {why}; choose another address in listeners, "
            "or end the process that uses it",
            code="listener",
        ) from e
    return server_socket


def configure_logs(config: NodeConfig) -> None:
    """Set up the log stream of this process and of the children whose lines it forwards."""
    stream = sys.stdout if config.is_log_on_stdout else sys.stderr
    logs.configure("node", stream=stream, form=config.values["icefloe.log.format"])


def run_node(properties: Path | None) -> int:
    """Run a node until SIGTERM or SIGINT; return the exit status.

    Args:
        properties: file; None takes every property from the environment.

    Raises:
        ConfigError: properties are missing or wrong, the address or the state folder is in use,
            or there is no Java for the worker.
    """
    logs.configure("node")
    find_java()  # otherwise the worker would fail repeatedly, and report it in its own log only
    config = NodeConfig.load(properties, os.environ)
    configure_logs(config)
    started = NodeStart.of(config, dict(os.environ))
    forget_credentials(os.environ)
    on_signals({signal.SIGTERM, signal.SIGINT}, started.stopping.set)
    with stopped_on_error(started):
        node = start_module("connect.node.node", without=NOT_NEEDED).Node(started)
    status: int = node.run()
    return status


def run_standalone(
    config: NodeConfig, connectors: Sequence[StandaloneConnector], *, is_new_run: bool
) -> int:
    """Run connectors until they are completed, one fails, or a signal; return the exit status.

    Args:
        config: its state is in files.
        connectors: what the node runs.
        is_new_run: start completed bounded runs again.

    Raises:
        IcefloeError: the node or a connector cannot be run.
    """
    configure_logs(config)
    find_java()
    if not is_new_run and are_completed(config, connectors):
        return ExitStatus.DONE
    started = NodeStart.of(config, dict(os.environ))
    forget_credentials(os.environ)
    on_signals({signal.SIGTERM, signal.SIGINT}, started.stopping.set)
    with stopped_on_error(started):
        job_class = start_module("connect.node.standalone", without=NOT_NEEDED).StandaloneJob
        node = start_module("connect.node.node").Node(started)
    status: int = job_class(node, connectors, is_new_run=is_new_run).run()
    return status


@contextlib.contextmanager
def stopped_on_error(started: NodeStart) -> Iterator[None]:
    """Stop the children when the node cannot be made."""
    try:
        yield
    except BaseException:
        for child in started.children.values():
            child.shutdown(0)
        raise


def raise_open_files_limit() -> int:
    """Raise the soft limit to ``OPEN_FILES``, or to the hard limit if that is lower.

    A higher soft limit stays. Needs no privilege.

    Returns:
        The soft limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = hard == resource.RLIM_INFINITY
    raised = OPEN_FILES if is_unlimited else min(OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= raised:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError) as e:
        _log.warning("limit of open files not raised", limit=soft, error=str(e))
        return soft
    _log.info("limit of open files raised", limit=raised, before=soft)
    return raised
