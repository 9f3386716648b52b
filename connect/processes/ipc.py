"""JSON lines between a node and its children, over a private socket pair.

The node passes one end to the child as an inherited descriptor, its number in ``ICEFLOE_IPC_FD``.
End of stream means that the other side is gone: a child then drains and ends.

Both sides have the version of Icefloe in their first message. They understand each other only if it
is the same. It differs if the installation was changed while the node ran.

Node to child (``op``):
    ``configure``  {version, properties, process}     once, first; placeholders unresolved
    ``start``      {connector, config, layout, generation[, task]}  task only for workers; replaces
                   the unit of an older generation
    ``stop``       {connector[, task][, generation]}  that generation; without it, all of the unit
    ``layout``     {connector, layout}                coordinators: the layout that is ready now
    ``decide``     {connector, table, action, request}  coordinators: ``retry`` or ``skip`` a
                   failed table; answered
    ``rebase``     {connector, config, tables, apply, request}  coordinators: write the group's
                   control offsets into tables that have lost theirs; answered
    ``reset_valid_through``  {connector, config, tables, reason, control_ends, apply, request}
                   coordinators: withdraw the VTTS that tables claim; answered
    ``rewind``     {connector, config, step, request, ...}  coordinators: ``plan`` with ``asked``
                   and ``ranges_from``; ``keep``, ``apply``, ``release`` and ``cancel`` with the
                   recorded ``rewind``; answered
    ``log-level``  {logger, level}                    a number of the standard library's levels
    ``shutdown``   {grace_ms}

Child to node (``event``):
    ``takes_commands``  {version}                     workers, while Spark starts
    ``ready``      {pid, version}                     it takes commands and does its work
    ``refused``    {message}                          the node has another version; the child ends
    ``state``      {connector, task|null, generation, sequence, layout, state, ended, code|null,
                   trace|null, retriable}             state: STARTING RUNNING FAILED STOPPED;
                   generation: of the ``start``; sequence: of the report within it; ended: no
                   further report of this generation follows
    ``inventory``  {last_generation, units: [{...as in state[, idle_ms, idle_ms_max]
                   [, waits_for, waited_ms]}]}        every few seconds: all units that run, and
                   failures not cleared; last_generation: the highest of all ``start`` commands;
                   idle_ms: since it made progress; waits_for: a text
    ``spans``      {spans: [...]}                     of one round, as ``RoundSpan``; only while the
                   node exports traces
    ``metrics``    {samples: [[name, {label: value}, number], ...]}  absolute values
    ``round``      {connector, commit_id, partial, valid_through_us, duration_ms, records,
                   topics: [...], topic_records: {topic: records},
                   tables: [{table, snapshot_id, files, records, bytes, ...}]}
    ``table_described``  {connector, table, format, location, catalog, columns}  after a commit, if
                   it is new; only while the node sends lineage events
    ``failed_tables``  {connector, tables: [{table, code, message, retriable, announcements,
                   files, records}]}                  all tables not committed, after each change
    ``retention``  {connector, message|null}          an alarm about the control topic's retention
    ``answer``     {connector, request, ...}          to the command with that ``request``
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final

DESCRIPTOR_VARIABLE = "ICEFLOE_IPC_FD"
LINE_BYTES_MAX = 16 * 1024 * 1024
VERSION: Final = version("icefloe")
"""The version of this process; the installation may have another one by now."""


class Channel:
    """One end of the pipe. ``send`` may be called from any thread; ``receive`` from one."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._reader = end.makefile("rb")
        self._lock = threading.Lock()
        self._first: dict[str, Any] | None = None

    @classmethod
    def from_node(cls) -> Channel | None:
        """Return the pipe with the descriptor in the environment; None when there is none."""
        descriptor = os.environ.pop(DESCRIPTOR_VARIABLE, None)
        return None if descriptor is None else cls.inherited(int(descriptor))

    @classmethod
    def inherited(cls, descriptor: int) -> Channel:
        """Return the child's end, from its descriptor number."""
        return cls(socket.socket(fileno=descriptor))

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send one message; False when the other side is gone."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        try:
            with self._lock:
                self._socket.sendall(line)
        except OSError:
            return False
        return True

    def first(self) -> dict[str, Any]:
        """Return the first message; ``receive`` yields it again. Empty at the end of stream."""
        self._first = next(self.receive(), None)
        return self._first or {}

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yield messages until the end of stream."""
        if self._first is not None:
            first, self._first = self._first, None
            yield first
        while True:
            try:
                line = self._reader.readline(LINE_BYTES_MAX)
            except (OSError, ValueError):
                return
            if not line.endswith(b"\n"):
                return
            yield json.loads(line)

    def stop_receiving(self) -> None:
        """Make ``receive`` end; sending continues. May be called from a signal handler."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """End the pipe; the other side sees end of stream."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._socket.close()


def version_refusal(process: str, theirs: object) -> str | None:
    """Return why two processes of a node cannot work together; None if they can.

    Args:
        process: name of the child.
        theirs: version of the other process; None if it sent none.
    """
    if theirs == VERSION:
        return None
    return (
        f"the node and its {process} process have different versions of Icefloe ({VERSION} and "
        f"{theirs or 'one that sends no version'}): the installation was changed while the node "
        "ran; start the node again"
    )
