"""The cluster's state in Kafka: configurations, target states, layouts and placements.

Rules of this file:
- The config topic is the state; memory holds what its records add up to (``connector_state``).
- Only the leader writes. It holds the transactional id of Kafka Connect's leader, which fences
  earlier leaders, Java workers among them. A write of any other node is refused.
- Configurations are stored exactly as sent; placeholders of secrets are not resolved.
- Returned values are immutable, so callers need no lock.
- Jobs of the leader take long, and a connector may be deleted, or created again, meanwhile. The
  result of a job is written only for the connector that it read: check and write are one step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from connect.clock import Clock
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError, Fenced, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.model.layout import Layout, TopicPartition
from connect.protocol.source_end import SourceEnd
from connect.protocol.source_floor import SourceFloor
from connect.state import connector_state, topic_records
from connect.state.compacted_topic import CompactedTopic, StorageTopic
from connect.state.connector_state import ConfigState, Leader, StoredConnector
from connect.state.file_log import CONFIG_FILE, FileLog
from connect.state.placement import Places
from connect.state.rewind_record import RewindRecord
from connect.state.state_log import OnRecord, StateLog
from connect.state.topic_records import LEADER, LOGGER, STATE_FORMAT, Record, TargetState

_log = logger("store")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What the stores need of the node's configuration; client properties by Java names.

    Attributes:
        group_id: the node cluster's ``group.id``.
        worker_id: ``host:port`` of this node.
        config_topic: ``config.storage.*``.
        status_topic: ``status.storage.*``.
        reader_properties: of consumers.
        producer_properties: of producers.
        folder: of the state files; None keeps the state in the topics.
    """

    group_id: str
    worker_id: str
    config_topic: StorageTopic
    status_topic: StorageTopic
    reader_properties: Mapping[str, str]
    producer_properties: Mapping[str, str]
    folder: Path | None = None

    @classmethod
    def of(
        cls,
        config: NodeConfig,
        worker_id: str,
        *,
        reader_properties: Mapping[str, str],
        producer_properties: Mapping[str, str],
    ) -> StoreSettings:
        """From a node's configuration and its client properties."""
        return cls(
            group_id=config.group_id,
            worker_id=worker_id,
            config_topic=StorageTopic(
                config.config_topic,
                "config.storage.topic",
                replication_factor=config.config_replication_factor,
                is_ordered=True,
            ),
            status_topic=StorageTopic(
                config.status_topic,
                "status.storage.topic",
                partitions=config.status_partitions,
                replication_factor=config.status_replication_factor,
            ),
            reader_properties=reader_properties,
            producer_properties=producer_properties,
            folder=config.state_dir.resolve() if config.is_state_in_files else None,
        )

    def open_log(
        self,
        topic: StorageTopic,
        file: str,
        *,
        transactional_id: str,
        admin: KafkaAdmin,
        clock: Clock,
        on_record: OnRecord,
    ) -> StateLog:
        """Return the log of a store: the topic, or the file of the state folder."""
        if self.folder is not None:
            return FileLog(self.folder / file, on_record)
        return CompactedTopic(
            topic,
            admin=admin,
            reader_properties=self.reader_properties,
            producer_properties=self.producer_properties,
            transactional_id=transactional_id,
            on_record=on_record,
            clock=clock,
        )


class ConfigStore:
    """Connector configurations, target states and layouts. Thread-safe.

    Args:
        settings: topics and clients.
        on_change: called with a connector's name after a record about it was read, on the
            reading thread; must not block.
        on_logger: called on the same thread with the name of a logger and its new level.
        on_newer: called on the same thread, after ``start``, with an error when a leader writes
            records of a newer format; this node must end.
    """

    def __init__(
        self,
        settings: StoreSettings,
        admin: KafkaAdmin,
        clock: Clock,
        on_change: Callable[[str], None] = lambda _: None,
        on_logger: Callable[[str, str], None] = lambda *_: None,
        *,
        on_newer: Callable[[ConfigError], None] = lambda _: None,
    ) -> None:
        self._state = ConfigState()
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        self._on_change = on_change
        self._on_logger = on_logger
        self._on_newer = on_newer
        self._is_leading = self._has_started = False
        self._topic = settings.open_log(
            settings.config_topic,
            CONFIG_FILE,
            admin=admin,
            # the id that Kafka Connect's leader uses: a Java leader of this group is fenced
            transactional_id=f"connect-cluster-{settings.group_id}",
            on_record=self._apply,
            clock=clock,
        )

    def start(self) -> None:
        """Create or check the topic, read it to its end and follow it.

        Raises:
            ConfigError: the topic cannot be used; ``state_format``, its records are newer.
            RetriableError: the broker cannot be reached.
        """
        self._topic.start()
        if (error := _newer_format(self.leader())) is not None:
            raise error
        self._has_started = True

    def lead(self, worker_id: str, url: str) -> None:
        """Become the writer; on return everything that earlier leaders wrote is read.

        Raises:
            Fenced: another node becomes the writer at the same time.
            RetriableError: the broker cannot be reached.
        """
        self._topic.acquire()
        self._is_leading = True
        # a write returns when it is read back, and earlier records are read before it
        self._write([topic_records.leader_record(worker_id, url)])

    def step_down(self) -> None:
        """Stop writing; returns at once."""
        self._is_leading = False

    @property
    def is_leading(self) -> bool:
        """Whether this node may write."""
        return self._is_leading

    def leader(self) -> Leader | None:
        """Return the node that became leader last; it may have left since."""
        with self._lock:
            return self._state.leader

    def position(self) -> int:
        """Offset up to which the topic has been read."""
        return self._topic.position

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until the topic is read up to an offset; return whether it was in time."""
        return self._topic.await_position(offset, timeout_s)

    def close(self) -> None:
        """Stop following the topic."""
        self._topic.close()

    def names(self) -> list[str]:
        """Return the names of the existing connectors, sorted."""
        with self._lock:
            return self._state.names()

    def get(self, name: str) -> StoredConnector:
        """Return the connector's state; ``config`` is None when it does not exist."""
        with self._lock:
            return self._state.get(name)

    def has(self, name: str) -> bool:
        """Return whether the connector exists."""
        return self.get(name).config is not None

    def put_connector(
        self, name: str, config: Mapping[str, str], target: TargetState | None = None
    ) -> None:
        """Create or replace a connector."""
        self._write(topic_records.config_records(name, config, target))

    def put_target(self, name: str, target: TargetState) -> None:
        """Set the target state."""
        self._write([topic_records.target_record(name, target)])

    def put_layout(self, layout: Layout, config: Mapping[str, str]) -> None:
        """Commit a layout; its tasks may not start before ``put_ready``.

        Args:
            layout: the layout.
            config: the stored configuration that it was made for.

        Raises:
            RetriableError: ``connector_changed``: that is not the configuration any more.
        """
        with self._writing:
            self._check(layout.connector, lambda state: state.config == dict(config))
            self._write(list(topic_records.layout_records(layout, config)))

    def put_ready(self, layout: Layout, places: Places | None = None) -> None:
        """Record that every transactional id of the old and the new layout is fenced.

        ``places`` is the placement of the layout; None keeps the stored one.

        Raises:
            RetriableError: ``connector_changed``: that is not the stored layout any more.
        """
        name, number = layout.connector, layout.number
        placed = [] if places is None else [topic_records.placement_record(name, places)]
        with self._writing:
            self._check(name, lambda state: bool(state.layout and state.layout.number == number))
            self._write([*placed, topic_records.ready_record(layout, self.get(name).tasks_ever)])

    def put_places(self, places: Mapping[str, Places]) -> None:
        """Store which nodes run these connectors; one that was deleted meanwhile is left out."""
        with self._writing:
            existing = {n: where for n, where in places.items() if self.get(n).config is not None}
            if existing:
                self._write([topic_records.placement_record(n, w) for n, w in existing.items()])

    def put_restart(self, request: str, name: str, *, coordinator: bool, tasks: list[int]) -> None:
        """Request that the nodes which run these units restart them."""
        self._write(
            [topic_records.restart_record(request, name, coordinator=coordinator, tasks=tasks)]
        )

    def put_logger(self, namespace: str, level: str) -> None:
        """Set a logger's level on every node."""
        self._write([topic_records.logger_record(namespace, level)])

    def put_offsets(self, name: str, offsets: Mapping[TopicPartition, int] | None) -> None:
        """Store the source offsets to set before the connector starts; None when they are set."""
        self._write_existing(name, topic_records.offsets_record(name, offsets))

    def put_rewind(self, name: str, rewind: RewindRecord | None) -> None:
        """Store a rewind that begins; None when it is done."""
        value = None if rewind is None else rewind.to_json()
        self._write([topic_records.rewind_record(name, value)])

    def put_source_floor(self, name: str, floor: SourceFloor) -> None:
        """Store which source partitions a connector has read."""
        self._write_existing(name, topic_records.source_record(name, floor))

    def put_end(self, name: str, end: SourceEnd | None) -> None:
        """Store where a bounded run ends, and whether it is complete; None removes it."""
        self._write_existing(name, topic_records.end_record(name, end))

    def delete_connector(self, name: str) -> None:
        """Delete a connector."""
        with self._writing:
            self._write(connector_state.deletion_records(self.get(name)))

    def _write_existing(self, name: str, record: Record) -> None:
        """Write a record about a connector that exists.

        Raises:
            RetriableError: ``connector_changed``: it was deleted.
        """
        with self._writing:
            self._check(name, lambda state: state.config is not None)
            self._write([record])

    def _check(self, name: str, is_current: Callable[[StoredConnector], bool]) -> None:
        """Raise an error if a job has read another state than the present one."""
        if self._is_leading and not is_current(self.get(name)):
            raise RetriableError(
                f"connector {name} was changed or deleted meanwhile",
                code="connector_changed",
                connector=name,
            )

    def _write(self, written: Sequence[Record]) -> None:
        if not self._is_leading:
            raise Fenced("this node does not lead its cluster")
        with self._writing:
            self._topic.write([(key, topic_records.encode(value)) for key, value in written])

    def _apply(self, key: str, value: bytes | None) -> None:
        try:
            decoded = topic_records.decode(value)
        except ValueError:
            _log.warning("record of the config topic is not a JSON object, skipped", key=key)
            return
        if key.startswith(LOGGER) and decoded is not None:
            if self._has_started:  # as in Kafka, a restarted worker does not keep levels
                self._on_logger(key.removeprefix(LOGGER), str(decoded.get("level")))
            return
        with self._lock:
            name = self._state.apply(key, decoded)
            error = _newer_format(self._state.leader) if key == LEADER else None
        if error is not None and self._has_started:
            self._on_newer(error)
        if name is not None:
            self._on_change(name)


def _newer_format(leader: Leader | None) -> ConfigError | None:
    """Return why this version cannot read the topic; None if it can."""
    if leader is None or leader.state_format <= STATE_FORMAT:
        return None
    return ConfigError(
        f"the node {leader.worker_id} writes the config topic in format {leader.state_format}, but "
        f"this version of Icefloe reads formats up to {STATE_FORMAT}: upgrade this node",
        code="state_format",
    )
