"""Reads the state of single connectors from the config topic or the state file.

Rules of this file:
- A task reads its layout this way. It needs no store, which writes the topic and has a thread.
- A call returns what the topic has when it begins. What an earlier call read is kept, so that the
  tasks of a process do not all read the whole topic: a call reads the records that came later.
- It is dropped after an error, when the topic was created again or ends earlier, and after
  ``KEPT_MS`` without a call: brokers remove a deletion itself after ``delete.retention.ms``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from connect.clock import Clock, SystemClock
from connect.config.node.node_config import NodeConfig
from connect.gateways.kafka.kafka_clients import LogReader, client_properties
from connect.gateways.kafka.shared_admins import SharedAdmins
from connect.model.layout import TopicPartition
from connect.state.compacted_topic import read_until, watermarks
from connect.state.connector_state import ConfigState, StoredConnector
from connect.state.file_log import CONFIG_FILE, read_state
from connect.state.topic_records import decode

KEPT_MS = 600_000

ReadConnector: TypeAlias = Callable[[str, Mapping[str, str]], StoredConnector]
"""Returns the present state of a connector, by its name and the node's resolved properties."""


def connector_reader(node: NodeConfig, admins: SharedAdmins) -> ReadConnector:
    """Return the function that reads a connector of a node, where the node keeps its state.

    It gets the node's properties at each call, because secrets are replaced while a worker runs.

    Args:
        node: of this process.
        admins: admin clients of this process.
    """
    if node.is_state_in_files:
        file = node.state_dir / CONFIG_FILE
        return lambda connector, _: read_connector_file(file, connector)
    return ConnectorReader(node.config_topic, admins).read


@dataclass(frozen=True, slots=True)
class _ConfigRead:
    """What was read of the topic with this id: the state before these positions."""

    topic_id: str | None
    state: ConfigState
    positions: Mapping[TopicPartition, int]
    at_ms: int


@dataclass(slots=True)
class ConnectorReader:
    """Reads connectors for all tasks of a process. Thread-safe.

    Args:
        topic: ``config.storage.topic``.
        admins: admin clients of the process.
        clock: for the age of what is kept.

    Attributes:
        records: how many records were read.
    """

    topic: str
    admins: SharedAdmins
    clock: Clock = field(default_factory=SystemClock)
    records: int = field(default=0, init=False)
    _last: _ConfigRead | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def read(self, connector: str, node: Mapping[str, str]) -> StoredConnector:
        """Read the config topic to its present end; return the whole state of one connector.

        Args:
            connector: its name.
            node: the node's properties, placeholders resolved.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        properties = client_properties(node)
        with self.admins.lend(properties) as admin:
            topic_id = admin.topic_ids([self.topic]).get(self.topic)
            marks = watermarks(admin, self.topic, self.clock)
        with self._lock:
            last, self._last = self._last, None  # an error in the middle drops it
            if last is None or not self._continues(last, topic_id, marks):
                starts = {tp: start for tp, (start, _) in marks.items()}
                last = _ConfigRead(topic_id, ConfigState(), starts, 0)
            ends = {tp: end for tp, (_, end) in marks.items()}
            if ends != last.positions:
                last = replace(last, positions=self._read_on(last, ends, properties))
            self._last = replace(last, at_ms=self.clock.monotonic_ms())
            return last.state.get(connector)

    def _continues(
        self,
        last: _ConfigRead,
        topic_id: str | None,
        marks: Mapping[TopicPartition, tuple[int, int]],
    ) -> bool:
        return (
            self.clock.monotonic_ms() - last.at_ms < KEPT_MS
            and last.topic_id == topic_id
            and last.positions.keys() == marks.keys()
            and all(at <= marks[tp][1] for tp, at in last.positions.items())
        )

    def _read_on(
        self, last: _ConfigRead, ends: Mapping[TopicPartition, int], properties: Mapping[str, str]
    ) -> Mapping[TopicPartition, int]:
        """Apply the records from the kept positions to the ends; return the next positions."""
        reader = LogReader({**properties, "fetch.max.wait.ms": "10"})
        try:
            reader.assign(last.positions)
            read_until(reader, ends, partial(self._apply, last.state))
            return reader.positions()
        finally:
            reader.close()

    def _apply(self, state: ConfigState, key: str, value: bytes | None) -> None:
        self.records += 1
        try:
            state.apply(key, decode(value))
        except ValueError:
            return


def read_connector_file(file: Path, connector: str) -> StoredConnector:
    """Read the state file of a node; return the whole state of one connector.

    Raises:
        ConfigError: ``state_file``: it cannot be read.
    """
    return read_state(file).get(connector)
