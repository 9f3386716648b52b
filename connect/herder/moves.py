"""Source offsets that are moved by somebody: told where the coordinator reads of them.

Rules of this file:
- The coordinator holds that each announced range begins where the last one ended. Who moves an
  offset says so in the control topic first; between saying and doing a crash does no harm, for
  what was said only makes the coordinator take the next range as it comes.
- The word is an event that Java's coordinator and tasks pass over, with a header of ours.
- Moving the offsets of a topic, or forgetting them, also takes the topic as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.control_log import OWN_PARTITION
from connect.gateways.kafka import Message, TransactionalProducer
from connect.gateways.kafka_admin import KafkaAdmin
from connect.herder.state import ConnectorState
from connect.herder.store import ConfigStore
from connect.layout import TopicPartition
from control_schemas.codec import encode
from control_schemas.events import CommitComplete, Event, EventHeaders
from control_schemas.headers import encode_headers


class OffsetMoves:
    """Moves of source offsets.

    Args:
        store: layouts, which hold the topics' identities.
        admin: the cluster.
        clock: event times and identities.
        group_id: the node cluster's ``group.id``.
        parsed: a connector's configuration.
        producer_properties: of producers for a connector.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        clock: Clock,
        *,
        group_id: str,
        parsed: Callable[[ConnectorState], ConnectorConfig],
        producer_properties: Callable[[ConnectorConfig], Mapping[str, str]],
    ) -> None:
        self._store = store
        self._admin = admin
        self._clock = clock
        self._group_id = group_id
        self.parsed = parsed
        self._producer_properties = producer_properties

    def announce(
        self,
        state: ConnectorState,
        partitions: Iterable[TopicPartition],
        *,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        """Say that these partitions will be read on from elsewhere; none means all.

        Args:
            state: the connector.
            partitions: which.
            after: called when all is prepared for saying it; what it raises is raised.

        Raises:
            ConfigError: the configuration cannot be run.
            RetriableError: the broker is away; nothing is said.
        """
        if not state.tasks_ever:
            return  # nothing was ever announced
        config = self.parsed(state)
        if self._admin.topic_id(config.control_topic) is None:
            return
        producer = TransactionalProducer(
            self._producer_properties(config), f"{self._group_id}-{state.name}-operator"
        )
        try:
            producer.init()
            after()
            producer.transact([self._word(config, partitions)])
        finally:
            producer.close()

    def accept(self, state: ConnectorState, topics: Iterable[str] | None = None) -> None:
        """Take these source topics as they are now (None: all); the connector must be stopped.

        Raises:
            RetriableError: the broker is away.
        """
        layout = state.layout
        if layout is None:
            return
        known = dict(layout.topic_ids)
        control = self.parsed(state).control_topic
        chosen = [t for t in known if t != control and (topics is None or t in set(topics))]
        now = self._admin.topic_ids(chosen)
        kept = {t: i for t, i in known.items() if t not in chosen}
        if {**kept, **now} == known:
            return
        ids = tuple(sorted({**kept, **now}.items()))
        accepted = replace(layout, number=state.number_max + 1, tasks=(), topic_ids=ids)
        self._store.put_layout(accepted, state.config or {})
        self._store.put_ready(accepted)

    def _word(self, config: ConnectorConfig, partitions: Iterable[TopicPartition]) -> Message:
        event = Event(
            id=self._clock.new_uuid(),
            timestamp_us=self._clock.now_ms() * 1000,
            group_id=config.connect_group_id,
            payload=CommitComplete(self._clock.new_uuid(), None),
        )
        moved = tuple((tp.topic, tp.partition) for tp in sorted(partitions))
        return Message(
            config.control_topic,
            config.connect_group_id.encode(),
            encode(event),
            encode_headers(EventHeaders(moved=moved)),
            partition=OWN_PARTITION,
        )
