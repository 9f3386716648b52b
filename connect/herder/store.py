"""The cluster's state in Kafka: configurations, wishes, layouts and statuses.

Rules of this file:
- The topics are the truth; what is held in memory is their fold (``state``) and nothing else.
- Configurations travel exactly as sent; no secret is ever resolved here.
- Everything that leaves is immutable, so callers need no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from connect.clock import Clock, SystemClock
from connect.errors import IcefloeError, RetriableError
from connect.gateways.kafka import LogReader
from connect.gateways.kafka_admin import KafkaAdmin
from connect.herder import records, state
from connect.herder.log import CLOSE_TIMEOUT_S, CompactedLog, ensure_compacted, read_all
from connect.herder.records import Record, TargetState
from connect.herder.state import ConfigState, ConnectorState, Status, StatusState
from connect.layout import Layout, TopicPartition
from connect.logs import logger

_log = logger("store")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What the stores need of the node's configuration; client properties by Java names.

    Attributes:
        group_id: the node cluster's ``group.id``.
        worker_id: ``host:port`` of this node.
        config_topic: ``config.storage.topic``.
        config_replication_factor: ``config.storage.replication.factor``.
        status_topic: ``status.storage.topic``.
        status_replication_factor: ``status.storage.replication.factor``.
        status_partitions: ``status.storage.partitions``.
        reader_properties: of consumers.
        producer_properties: of producers.
    """

    group_id: str
    worker_id: str
    config_topic: str
    config_replication_factor: int
    status_topic: str
    status_replication_factor: int
    status_partitions: int
    reader_properties: Mapping[str, str]
    producer_properties: Mapping[str, str]


class ConfigStore:
    """Connector configurations, target states and layouts. Thread-safe.

    Args:
        settings: topics and clients.
        admin: the cluster.
        clock: for time limits.
        on_change: called with a connector's name after a record about it was read, on the
            reading thread; must not block.
    """

    def __init__(
        self,
        settings: StoreSettings,
        admin: KafkaAdmin,
        clock: Clock,
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._state = ConfigState()
        self._lock = threading.Lock()
        self._on_change = on_change
        self._log = CompactedLog(
            settings.config_topic,
            admin=admin,
            reader_properties=settings.reader_properties,
            producer_properties=settings.producer_properties,
            # the id of Kafka Connect's own leader, so a Java leader of the same group is fenced
            transactional_id=f"connect-cluster-{settings.group_id}",
            on_record=self._apply,
            clock=clock,
        )

    def start(self) -> None:
        """Create or check the topic, read it to its end, take over writing.

        Raises:
            ConfigError: the topic does not serve.
            RetriableError: the broker is away.
        """
        ensure_compacted(
            self._admin,
            self._settings.config_topic,
            setting="config.storage.topic",
            partitions=1,
            replication_factor=self._settings.config_replication_factor,
            is_single=True,
        )
        self._log.acquire()
        self._log.start()

    def close(self) -> None:
        """Stop following the topic."""
        self._log.close()

    def names(self) -> list[str]:
        """Connectors that exist, sorted."""
        with self._lock:
            return self._state.names()

    def get(self, name: str) -> ConnectorState:
        """The connector's state; ``config`` is None when there is no such connector."""
        with self._lock:
            return self._state.get(name)

    def put_connector(
        self, name: str, config: Mapping[str, str], target: TargetState | None = None
    ) -> None:
        """Create or replace a connector."""
        self._write(records.config_records(name, config, target))

    def put_target(self, name: str, target: TargetState) -> None:
        """Set the operator's wish."""
        self._write([records.target_record(name, target)])

    def put_layout(self, layout: Layout, config: Mapping[str, str]) -> None:
        """Commit a layout; its tasks may not start before ``put_ready``."""
        self._write(list(records.layout_records(layout, config)))

    def put_ready(self, layout: Layout) -> None:
        """Say that every transactional id of the old and the new layout is taken over."""
        self._write([records.ready_record(layout, self.get(layout.connector).tasks_ever)])

    def put_offsets(self, name: str, offsets: Mapping[TopicPartition, int] | None) -> None:
        """Say which source offsets are to be set before the connector starts; None: they are."""
        self._write([records.offsets_record(name, offsets)])

    def delete_connector(self, name: str) -> None:
        """Forget a connector."""
        self._write(state.deletion_records(self.get(name)))

    def _write(self, written: Sequence[Record]) -> None:
        self._log.write([(key, records.encode(value)) for key, value in written])

    def _apply(self, key: str, value: bytes | None) -> None:
        try:
            decoded = records.decode(value)
        except ValueError:
            _log.warning("a record of the config topic is no JSON object, skipped", key=key)
            return
        with self._lock:
            name = self._state.apply(key, decoded)
        if name is not None:
            self._on_change(name)


class StatusStore:
    """Statuses of connectors and tasks. Thread-safe.

    A status is visible here at once and written behind, newest value per key only: a broker that
    is away delays no decision, and the topic holds what it can.

    Args:
        settings: topics and clients.
        admin: the cluster.
        clock: for time limits.
    """

    def __init__(self, settings: StoreSettings, admin: KafkaAdmin, clock: Clock) -> None:
        self._settings = settings
        self._admin = admin
        self._state = StatusState()
        self._changed = threading.Condition()
        self._waiting: dict[str, bytes | None] = {}
        self._own: set[str] = set()
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._log = CompactedLog(
            settings.status_topic,
            admin=admin,
            reader_properties=settings.reader_properties,
            producer_properties=settings.producer_properties,
            transactional_id=f"{settings.group_id}-status-{settings.worker_id}",
            on_record=self._apply,
            clock=clock,
        )

    def start(self) -> None:
        """Create or check the topic, read it to its end, start writing behind.

        Raises:
            ConfigError: the topic does not serve.
            RetriableError: the broker is away.
        """
        ensure_compacted(
            self._admin,
            self._settings.status_topic,
            setting="status.storage.topic",
            partitions=self._settings.status_partitions,
            replication_factor=self._settings.status_replication_factor,
            is_single=False,
        )
        self._log.start()
        self._thread = threading.Thread(target=self._write_behind, name="status", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write what is waiting, if the broker is there, then stop."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        self._log.close()

    def connector(self, name: str) -> Status | None:
        """The connector's status."""
        with self._changed:
            return self._state.connector(name)

    def tasks(self, name: str) -> dict[int, Status]:
        """Task id -> status."""
        with self._changed:
            return self._state.tasks(name)

    def topics(self, name: str) -> frozenset[str]:
        """Topics from which the connector has read since the last reset."""
        with self._changed:
            return self._state.topics(name)

    def put_connector(self, name: str, status: Status | None) -> None:
        """Set or, with None, forget the connector's status."""
        self._put(records.STATUS_CONNECTOR + name, status)

    def put_task(self, name: str, task: int, status: Status | None) -> None:
        """Set or, with None, forget a task's status."""
        self._put(f"{records.STATUS_TASK}{name}-{task}", status)

    def put_all(self, name: str, own: Status | None, tasks: Mapping[int, Status]) -> None:
        """Make the connector's statuses these and no others; write only what is different."""
        if self.connector(name) != own:
            self.put_connector(name, own)
        told = self.tasks(name)
        for task in tasks.keys() | told.keys():
            if told.get(task) != tasks.get(task):
                self.put_task(name, task, tasks.get(task))

    def put_topic(self, name: str, topic: str, *, task: int, now_ms: int) -> None:
        """Say that the connector has read from a topic."""
        self._put_json(*records.topic_record(name, topic, task=task, now_ms=now_ms))

    def forget_topics(self, name: str) -> None:
        """Empty the set of active topics."""
        for topic in self.topics(name):
            self._put_json(f"{records.STATUS_TOPIC}{topic}:connector-{name}", None)

    def _put(self, key: str, status: Status | None) -> None:
        self._put_json(key, None if status is None else status.to_json())

    def _put_json(self, key: str, value: Mapping[str, object] | None) -> None:
        with self._changed:
            self._state.apply(key, value)
            self._own.add(key)
            self._waiting[key] = records.encode(value)
            self._changed.notify_all()

    def _write_behind(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_closing:
                    self._changed.wait()
                batch, self._waiting = self._waiting, {}
                if not batch:
                    return
            try:
                self._log.write(list(batch.items()))
            except IcefloeError as e:
                _log.warning("statuses not written", error=str(e), count=len(batch))
                with self._changed:
                    if self._is_closing or not isinstance(e, RetriableError):
                        continue
                    self._waiting = {**batch, **self._waiting}

    def _apply(self, key: str, value: bytes | None) -> None:
        try:
            decoded = records.decode(value)
        except ValueError:
            return
        with self._changed:
            if key in self._own:
                # our own writes come back late: what is in memory is newer, unless another node
                # has taken the task over since
                writer = decoded.get("worker_id") if decoded else None
                if writer is None or writer == self._settings.worker_id:
                    return
                self._own.discard(key)
            self._state.apply(key, decoded)


def read_layouts(
    properties: Mapping[str, str], topic: str, connector: str
) -> tuple[Layout | None, int | None]:
    """Read the config topic to its end, for a task's own check at start.

    Args:
        properties: Java-named client properties.
        topic: ``config.storage.topic``.
        connector: connector name.

    Returns:
        The connector's latest layout (None when it has none or is deleted), and the number of
        the newest layout that is ready.

    Raises:
        RetriableError: the broker is away.
    """
    fold = ConfigState()

    def on_record(key: str, value: bytes | None) -> None:
        try:
            fold.apply(key, records.decode(value))
        except ValueError:
            return

    admin = KafkaAdmin(properties)
    reader = LogReader({**properties, "fetch.max.wait.ms": "10"})
    try:
        read_all(admin, reader, topic, on_record, clock=SystemClock())
    finally:
        reader.close()
        admin.close()
    found = fold.get(connector)
    return found.layout, found.ready
