"""Changes of source offsets by an operator: announced on the control topic, then stored.

Rules of this file:
- The coordinator checks that each announced range begins where the last one ended. A change of
  offsets is announced first. A crash between the two steps does no harm: the announcement only
  makes the coordinator accept any start of the next range.
- The announcement is an event that Java's coordinator and tasks ignore, with a header of Icefloe.
- Offsets are stored in a transaction of ``<group.id>-<connector>-operator``. Every start of a
  layout fences this id before its tasks start, so a leader that was frozen cannot change the
  offsets of tasks that another leader started.
- Each change initialises the id, then writes to the config topic, which refuses a node that no
  longer leads, then changes the offsets.
- Kafka cannot fence the deletion of a group. It comes directly after a write to the config topic. A
  leader that is frozen between these two requests still deletes the group. The source floor then
  keeps the partitions known, and no task starts from the policy.
- A change or reset of a topic's offsets also accepts the topic's present id.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import Fenced, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.protocol.control_topic import OWN_PARTITION
from connect.protocol.fencing import operator_transactional_id
from connect.protocol.source_floor import SourceFloor
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from control_schemas.codec import encode
from control_schemas.events import CommitComplete, Event, EventHeaders
from control_schemas.headers import encode_headers


class OffsetEvents:
    """Announces and stores changes of source offsets.

    Args:
        store: layouts, which contain the topics' ids.
        clock: event times and identities.

    Attributes:
        changing: held while offsets of stopped connectors are changed, or stored again.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        clock: Clock,
        configs: ConnectorConfigs,
    ) -> None:
        self._store = store
        self._admin = admin
        self._clock = clock
        self._configs = configs
        self.changing = threading.Lock()

    def announce(
        self,
        state: StoredConnector,
        partitions: Iterable[TopicPartition],
        *,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        """Announce that these partitions will be read from other offsets; none means all.

        Args:
            state: the connector.
            partitions: which.
            after: called when the operator's transactional id is initialised; its errors are
                raised.

        Raises:
            ConfigError: the configuration cannot be run.
            RetriableError: the broker cannot be reached; nothing is announced.
        """
        config = self._configs.parsed(state)
        with self._operator(state.name, config) as transact:
            after()
            transact(self._events(config, partitions), "", {})

    def announce_reset(self, state: StoredConnector) -> None:
        """Announce that the valid-through time that was claimed so far is withdrawn.

        Raises:
            ConfigError, RetriableError: as ``announce``.
        """
        config = self._configs.parsed(state)
        with self._operator(state.name, config) as transact:
            transact(self._completion(config, EventHeaders(is_reset=True)), "", {})

    def announce_rewind(self, state: StoredConnector, partitions: Iterable[TopicPartition]) -> None:
        """Announce that these partitions go back, and the valid-through time with them.

        Raises:
            ConfigError, RetriableError: as ``announce``.
        """
        config = self._configs.parsed(state)
        moved = tuple((tp.topic, tp.partition) for tp in sorted(partitions))
        with self._operator(state.name, config) as transact:
            event = self._completion(config, EventHeaders(moved=moved, is_reset=True))
            transact(event, "", {})

    def set(
        self,
        state: StoredConnector,
        group: str,
        offsets: Mapping[TopicPartition, int],
        *,
        is_announced: bool = False,
        also_moved: Iterable[TopicPartition] = (),
    ) -> None:
        """Announce a change of source offsets and store it, in one transaction.

        Args:
            state: the connector.
            group: its consumer group.
            offsets: to store.
            is_announced: the change was announced before.
            also_moved: more partitions whose earlier announcements no longer count.

        Raises:
            Fenced: another node leads.
            RetriableError: ``group_in_use``; ``offsets_contended``: another node has started the
                connector; the broker cannot be reached.
        """
        config = self._configs.parsed(state)
        with self._operator(state.name, config) as transact:
            floor = state.source_floor.without(offsets.keys())
            self._store.put_source_floor(
                state.name, replace(floor, offsets={**floor.offsets, **offsets})
            )
            self._admin.refuse_members(group)
            events = [] if is_announced else self._events(config, {*offsets, *also_moved})
            transact(events, group, offsets)

    def set_control(
        self, state: StoredConnector, config: ConnectorConfig, offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Store control offsets of a stopped connector in a transaction.

        Raises:
            Fenced, RetriableError: as ``set``.
        """
        with self._operator(state.name, config) as transact:
            self._confirm(state.name)
            self._admin.refuse_members(config.control_group_id)
            transact([], config.control_group_id, offsets)

    def delete_copy(self, name: str, group: str, copy: str) -> None:
        """Delete the second group of the older sink, if the connector's own has no members.

        Raises:
            Fenced, RetriableError: as ``set``; then neither group is changed.
        """
        self._admin.refuse_members(group)
        self._confirm(name)
        self._admin.delete_group(copy)

    def reset(self, state: StoredConnector, group: str) -> None:
        """Announce the reset of every source offset of a group, then delete the group.

        Raises:
            Fenced, RetriableError: as ``set``.
        """
        config = self._configs.parsed(state)
        with self._operator(state.name, config) as transact:
            self._store.put_source_floor(state.name, SourceFloor())
            self._admin.refuse_members(group)
            transact(self._events(config, ()), "", {})
            self._confirm(state.name)  # without a control topic there was no transaction
            self._admin.delete_group(group)

    def reset_floor(self, state: StoredConnector, partitions: Iterable[TopicPartition]) -> None:
        """Let these partitions start as new ones do when they have no offset.

        Raises:
            Fenced, RetriableError: as ``set``.
        """
        self._store.put_source_floor(state.name, state.source_floor.without(frozenset(partitions)))

    def settle(self, state: StoredConnector, config: ConnectorConfig | None, group: str) -> None:
        """Commit the pending offsets of the store to a group, and remove all others.

        Raises:
            Fenced: another node leads.
            RetriableError: as ``set``. The caller must repeat it before any task starts.
        """
        pending = state.pending_offsets
        if pending is None:
            return
        with self._operator(state.name, config) as transact:
            self._store.put_offsets(state.name, pending)
            self._admin.delete_group(group)
            transact([], group, pending)
        self._store.put_offsets(state.name, None)

    def accept(self, state: StoredConnector, topics: Iterable[str] | None = None) -> None:
        """Store the present ids of these source topics (None: all) of a stopped connector.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        layout = state.layout
        if layout is None:
            return
        topic_ids = dict(layout.topic_ids)
        control = self._configs.parsed(state).control_topic
        chosen = [t for t in topic_ids if t != control and (topics is None or t in set(topics))]
        self._accept_as_set(state.name, chosen)
        now = self._admin.topic_ids(chosen)
        remaining = {t: i for t, i in topic_ids.items() if t not in chosen}
        if {**remaining, **now} == topic_ids:
            return
        ids = tuple(sorted({**remaining, **now}.items()))
        accepted = replace(layout, number=state.number_max + 1, tasks=(), topic_ids=ids)
        self._store.put_layout(accepted, state.config or {})
        self._store.put_ready(accepted)

    def _accept_as_set(self, name: str, topics: Iterable[str]) -> None:
        """Leave the offsets of recreated topics as the operator has set them."""
        floor = self._store.get(name).source_floor
        pending = {
            t: recreated
            for t in topics
            if (recreated := floor.recreated.get(t)) and recreated.is_pending
        }
        if pending:
            settled = {t: replace(recreated, is_pending=False) for t, recreated in pending.items()}
            self._store.put_source_floor(name, floor.with_recreated(settled))

    def _confirm(self, name: str) -> None:
        """Write to the config topic what it has: it refuses a node that no longer leads."""
        self._store.put_source_floor(name, self._store.get(name).source_floor)

    @contextlib.contextmanager
    def _operator(self, name: str, config: ConnectorConfig | None) -> Iterator[_Transact]:
        """Initialise the operator's transactional id; yield a function that sends a transaction."""
        producer = TransactionalProducer(
            self._configs.producer_properties(config),
            operator_transactional_id(self._configs.group_id, name),
        )

        def transact(
            events: list[ProducerMessage], group: str, offsets: Mapping[TopicPartition, int]
        ) -> None:
            if events or offsets:
                with _contended(name):
                    producer.transact(events, group_id=group or None, offsets=offsets)

        try:
            with _contended(name):
                producer.init(topic=None if config is None else config.control_topic)
            yield transact
        finally:
            producer.close()

    def _events(
        self, config: ConnectorConfig, partitions: Iterable[TopicPartition]
    ) -> list[ProducerMessage]:
        moved = tuple((tp.topic, tp.partition) for tp in sorted(partitions))
        return self._completion(config, EventHeaders(moved=moved))

    def _completion(self, config: ConnectorConfig, headers: EventHeaders) -> list[ProducerMessage]:
        if self._admin.topic_id(config.control_topic) is None:
            return []
        event = Event(
            id=self._clock.new_uuid(),
            timestamp_us=self._clock.now_ms() * 1000,
            group_id=config.connect_group_id,
            payload=CommitComplete(self._clock.new_uuid(), None),
        )
        return [
            ProducerMessage(
                config.control_topic,
                config.connect_group_id.encode(),
                encode(event),
                encode_headers(headers),
                partition=OWN_PARTITION,
            )
        ]


_Transact = Callable[[list[ProducerMessage], str, Mapping[TopicPartition, int]], None]


@contextlib.contextmanager
def _contended(name: str) -> Iterator[None]:
    """Map ``Fenced``: this id is also lost when the connector is started or changed again."""
    try:
        yield
    except Fenced as e:
        raise RetriableError(
            f"connector {name} was started or changed at the same time; its source offsets were "
            "not changed by this request",
            code="offsets_contended",
        ) from e
