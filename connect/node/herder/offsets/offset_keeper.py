"""Keeps committed offsets of units that do not run: stores them before the broker deletes them.

Rules of this file:
- A running task stores its own offsets. The leader reads and stores again the offsets of a FAILED
  task, and of a paused or stopped connector. It uses the transactional id that alone may write
  them, so it stores no value that a running task has passed.
- Order: initialise the transactional id, write to the config topic, check that the layout is still
  the same, read the offsets, store them. A task that starts after the check fences this producer.
  A task that started before it has a newer layout, or the write to the config topic was refused.
- Offsets are stored unchanged, but control offsets move past events that no process needs.
- Partitions with an offset are written into the source floor: without an offset they never start
  from ``auto.offset.reset`` again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, Fenced, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, TransactionalProducer
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.model.layout import TopicPartition
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.offsets.offset_events import OffsetEvents
from connect.protocol.control_topic import read_to_end
from connect.protocol.fencing import (
    coordinator_transactional_id,
    operator_transactional_id,
    task_transactional_id,
)
from connect.protocol.offset_loss import control_events
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from control_schemas.events import CommitComplete, CommitToTable, StartCommit

_log = logger("herder")


@dataclass(frozen=True, slots=True)
class _OwnedOffsets:
    """Offsets that one transactional id may write."""

    transactional_id: str
    group: str
    partitions: Collection[TopicPartition]
    is_control: bool = False


class OffsetKeeper:
    """Keeps the offsets of the cluster's connectors; used by the leader, one call at a time.

    Args:
        store: configurations, layouts and source floors.
        offset_events: changes of offsets; none is made while offsets are stored again.
        failed_tasks: task ids of a connector with FAILED as their last state.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        offset_events: OffsetEvents,
        clock: Clock,
        configs: ConnectorConfigs,
        *,
        failed_tasks: Callable[[str], Collection[int]],
    ) -> None:
        self._store = store
        self._admin = admin
        self._offset_events = offset_events
        self._clock = clock
        self._configs = configs
        self._failed_tasks = failed_tasks
        self._failed_before: dict[str, frozenset[int]] = {}

    def keep(self) -> None:
        """Record the committed offsets, and store those again that no running unit stores.

        Raises:
            Fenced: another node leads.
        """
        for name in self._store.names():
            try:
                with self._offset_events.changing:
                    self._keep(self._store.get(name))
            except (ConfigError, RetriableError) as e:
                _log.warning("offsets not stored again", connector=name, error=str(e))

    def _keep(self, state: StoredConnector) -> None:
        if state.layout is None or not state.is_ready or state.pending_offsets is not None:
            return
        config = self._configs.parsed(state)
        overrides = (config.consumer_overrides, config.producer_overrides, config.kafka_overrides)
        if any("bootstrap.servers" in override for override in overrides):
            return  # its offsets are in another cluster
        self.note(state, config, state.layout.partitions)
        for owned in self._owned(state, config):
            self._store_again(state, config, owned)

    def note(
        self,
        state: StoredConnector,
        config: ConnectorConfig,
        partitions: Collection[TopicPartition],
    ) -> None:
        """Store which of these partitions, and of the known ones, have committed source offsets.

        Raises:
            Fenced: another node leads.
            RetriableError: the broker cannot be reached.
        """
        floor = state.source_floor
        noted = {*floor.offsets, *floor.starts, *partitions}
        # before the committed offsets: these count every announcement below the end
        events = control_events(self._admin, config.control_topic)
        ids = self._admin.topic_ids({tp.topic for tp in noted})
        existing = [tp for tp in noted if tp.topic in ids]
        offsets = self._admin.committed(config.connect_group_id, existing)
        committed = {tp: at for tp, at in offsets.items() if at is not None}
        updated = floor.updated(committed, ids, events)
        if updated != floor and self._is_current(state):
            self._store.put_source_floor(state.name, updated)

    def _owned(self, state: StoredConnector, config: ConnectorConfig) -> Iterator[_OwnedOffsets]:
        assert state.layout is not None
        name, group = state.name, config.connect_group_id
        failed = frozenset(self._failed_tasks(name))
        # a task that has just failed may be restarting
        is_resting = not state.is_to_run
        chosen = failed & self._failed_before.get(name, frozenset())
        self._failed_before[name] = failed
        for task, partitions in enumerate(state.layout.tasks):
            if partitions and (is_resting or task in chosen):
                yield _OwnedOffsets(
                    task_transactional_id(self._configs.group_id, name, task), group, partitions
                )
        if not is_resting:
            return
        if not state.layout.tasks:
            floor = self._store.get(name).source_floor
            operator = operator_transactional_id(self._configs.group_id, name)
            yield _OwnedOffsets(operator, group, tuple(floor.offsets))
        control = self._admin.partitions(config.control_topic)
        coordinator = coordinator_transactional_id(
            self._configs.group_id, name, config.coordinator_transactional_prefix
        )
        yield _OwnedOffsets(coordinator, config.control_group_id, control, is_control=True)

    def _store_again(
        self, state: StoredConnector, config: ConnectorConfig, owned: _OwnedOffsets
    ) -> None:
        producer = TransactionalProducer(
            self._configs.producer_properties(config), owned.transactional_id
        )
        try:
            try:
                producer.init(topic=config.control_topic)
            except Fenced:
                return  # the unit was started meanwhile
            self._store.put_source_floor(state.name, self._store.get(state.name).source_floor)
            if not self._is_current(state):
                return
            committed = self._admin.committed(owned.group, owned.partitions)
            offsets = {tp: at for tp, at in committed.items() if at is not None}
            if not offsets:
                return
            if owned.is_control:
                offsets = self._past_foreign_events(config, offsets)
            self._admin.refuse_members(owned.group)  # another sink may use it meanwhile
            try:
                producer.transact([], group_id=owned.group, offsets=offsets)
            except Fenced:
                return
            counter("offsets_kept", connector=state.name).inc(len(offsets))
        finally:
            producer.close()

    def _past_foreign_events(
        self, config: ConnectorConfig, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the control offsets moved past foreign events, to the connector's next one.

        Connectors share a control topic. Its retention must not pass the offset of a paused
        connector, for which no task announces meanwhile.
        """
        marks = self._admin.watermarks(list(offsets))
        if any(at < marks[tp][0] or at > marks[tp][1] for tp, at in offsets.items()):
            return dict(offsets)  # the coordinator reports the loss when it starts
        moved = {tp: end for tp, (_, end) in marks.items()}
        reader = LogReader(self._configs.producer_properties(config))
        try:
            group = config.connect_group_id
            for record in read_to_end(reader, offsets, moved, self._clock, holding=group.encode()):
                tp = TopicPartition(config.control_topic, record.partition)
                event = record.event
                is_passed = event is not None and (
                    event.group_id != group
                    or isinstance(event.payload, StartCommit | CommitToTable | CommitComplete)
                )
                if not is_passed:
                    moved[tp] = min(moved[tp], record.offset)
        finally:
            reader.close()
        return moved

    def _is_current(self, state: StoredConnector) -> bool:
        now = self._store.get(state.name)
        return (now.layout, now.ready, now.target, now.pending_offsets) == (
            state.layout,
            state.ready,
            state.target,
            state.pending_offsets,
        )
