"""The start of a child process, its side of the pipe, and its form of errors.

Rules of this file:
- The first line of a trace names the cause and its coordinates; the stack follows.
- When the node is gone (end of stream), the child drains and ends: its reports reach no process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connect import logs
from connect.config.node.node_config import NodeConfig
from connect.errors import (
    ConfigError,
    DataLost,
    Fenced,
    IcefloeError,
    InvariantViolation,
    trace_of,
)
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.ambient_variables import forget_credentials
from connect.model.round_span import RoundSpan
from connect.processes.ipc import VERSION, Channel, version_refusal
from connect.processes.signals import on_signals
from connect.redaction.secret_values import KNOWN
from connect.validation.providers import Providers

TRACE_CHARACTERS_MAX = 16_384
_FINAL = (ConfigError, DataLost, Fenced, InvariantViolation)


def error_fields(
    error: BaseException | None, trace_characters_max: int | None = None
) -> dict[str, Any]:
    """Return the fields of an error in ``state`` messages: code, trace, whether to retry.

    Args:
        error: None is no error.
        trace_characters_max: length to which the trace is cut; None is the default length.
    """
    if error is None:
        return {"code": None, "trace": None, "retriable": True}
    return {
        "code": error.code if isinstance(error, IcefloeError) else "unexpected",
        "trace": KNOWN.mask(trace_of(error))[: trace_characters_max or TRACE_CHARACTERS_MAX],
        "retriable": not isinstance(error, _FINAL),
    }


class Child:
    """The child's side of the pipe.

    Args:
        channel: from the node.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    @classmethod
    def of(cls, channel: Channel | None) -> Child:
        """Return the child at this end of the pipe.

        Raises:
            ConfigError: ``channel`` is None: the process was not started by a node.
        """
        if channel is None:
            raise ConfigError(
                "this process is started by a node (icefloe node), not manually", code="not_a_child"
            )
        return cls(channel)

    def takes_commands(self) -> None:
        """Report that the child takes commands, although it is not ready yet."""
        self.channel.send({"event": "takes_commands", "version": VERSION})

    def ready(self) -> None:
        """Report that the child is ready, which implies that it takes commands."""
        self.channel.send({"event": "ready", "pid": os.getpid(), "version": VERSION})

    def topic_missing(self, connector: str) -> None:
        """Report that a topic of a task was not found: its layout may be outdated."""
        self.channel.send({"event": "topic_missing", "connector": connector})

    def spans(self, spans: Sequence[RoundSpan]) -> None:
        """Send spans of a round, which the node exports; secrets in names are masked."""
        listed = [
            {**span.to_json(), "attributes": KNOWN.masked(dict(span.attributes))} for span in spans
        ]
        self.channel.send({"event": "spans", "spans": listed})

    def commands(self, stopping: threading.Event) -> Iterator[Mapping[str, Any]]:
        """Yield commands until ``shutdown`` or the end of the node; then set ``stopping``.

        Commands that set log levels are executed and not yielded.
        """
        for message in self.channel.receive():
            if message.get("op") == "shutdown":
                break
            if message.get("op") == "log-level":
                logs.set_level(message["logger"], message["level"])
                continue
            yield message
        stopping.set()


@dataclass(frozen=True, slots=True)
class Serving:
    """A child that has received its configuration.

    Attributes:
        child: the pipe.
        node: the node's configuration.
        providers: resolves placeholders, in this process.
        commands: commands of the node, until its end, ``shutdown``, or SIGTERM.
        stopping: set at the end of the commands.
        process: name of this process, one of several of its kind.
    """

    child: Child
    node: NodeConfig
    providers: Providers
    commands: Iterator[Mapping[str, Any]]
    stopping: threading.Event
    process: str


def begin(process: str, channel: Channel | None) -> Serving | None:
    """Set up logs, pipe, signals and configuration; return None when ended before that.

    Args:
        process: ``worker``, ``coordinator`` or ``maintenance``, for its logs.
        channel: the pipe to the node; None when the process was not started by a node.

    Raises:
        ConfigError: not started by a node, the first command is not ``configure``, or the node has
            another version (``ipc_version``).
    """
    logs.configure(process, stream=sys.stdout)  # its JVM writes to standard error
    child = Child.of(channel)
    stopping = threading.Event()

    def on_signal() -> None:
        stopping.set()
        child.channel.stop_receiving()

    on_signals({signal.SIGTERM}, on_signal)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole group; the node handles it
    commands = child.commands(stopping)
    configure: Mapping[str, Any] = next(commands, {})
    if stopping.is_set():
        return None
    if configure.get("op") != "configure":
        raise ConfigError("the first command must be configure", code="ipc")
    refusal = version_refusal(process, configure.get("version"))
    if refusal is not None:
        child.channel.send({"event": "refused", "message": refusal})
        raise ConfigError(refusal, code="ipc_version")
    if (name := configure.get("process", process)) != process:  # one of several of its kind
        logs.configure(name, stream=sys.stdout)
    node = NodeConfig.from_properties(configure["properties"])
    install(AccessPolicy.of(node.properties))
    providers = Providers(node.properties, dict(os.environ))
    forget_credentials(os.environ)
    return Serving(child, node, providers, commands, stopping, name)
