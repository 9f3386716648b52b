"""What both children of a node share: the pipe, states and how an error is told.

Rules of this file:
- The first line of a trace names the cause and its coordinates; the stack follows.
- A child whose node is gone (end of stream) drains and ends: nobody would hear of its work.
"""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from connect.errors import ConfigError, DataLost, Fenced, IcefloeError, InvariantViolation
from connect.ipc import Channel

DESCRIPTOR_VARIABLE = "ICEFLOE_IPC_FD"
TRACE_CHARACTERS_MAX = 16_384
_FINAL = (ConfigError, DataLost, Fenced, InvariantViolation)


def told(error: BaseException) -> dict[str, Any]:
    """An error as ``state`` messages carry it: code, trace and whether a restart may help."""
    stack = "".join(traceback.format_exception(error))
    return {
        "code": error.code if isinstance(error, IcefloeError) else "unexpected",
        "trace": f"{type(error).__name__}: {error}\n\n{stack}"[:TRACE_CHARACTERS_MAX],
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
    def from_environment(cls) -> Child:
        """The pipe whose descriptor the node put into the environment.

        Raises:
            ConfigError: not started by a node.
        """
        descriptor = os.environ.pop(DESCRIPTOR_VARIABLE, None)
        if descriptor is None:
            raise ConfigError(
                "this process is started by a node (icefloe node), not by hand", code="not_a_child"
            )
        return cls(Channel.inherited(int(descriptor)))

    def ready(self) -> None:
        """Say that commands can be taken."""
        self.channel.send({"event": "ready", "pid": os.getpid()})

    def state(
        self,
        connector: str,
        state: str,
        *,
        task: int | None = None,
        layout: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Say how a connector's coordinator, or one of its tasks, is."""
        self.channel.send(
            {
                "event": "state",
                "connector": connector,
                "task": task,
                "layout": layout,
                "state": state,
                **(told(error) if error else {"code": None, "trace": None, "retriable": True}),
            }
        )

    def commands(self, stopping: threading.Event) -> Iterator[Mapping[str, Any]]:
        """Commands until ``shutdown`` or the end of the node; sets ``stopping`` then.

        Log levels are dealt with here.
        """
        for message in self.channel.receive():
            if message.get("op") == "shutdown":
                break
            if message.get("op") == "log-level":
                name = message["logger"]
                logging.getLogger(None if name == "root" else name).setLevel(message["level"])
                continue
            yield message
        stopping.set()
