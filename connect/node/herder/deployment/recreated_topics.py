"""Source topics that were deleted and created again, of connectors that continue after data loss.

Rules of this file:
- Order: record the topic as pending in the source floor, write a layout with its new id, fence all
  older tasks, set the source offsets of its partitions to 0, record it as done, mark the layout
  ready. After a crash at any step the next leader finds the id or the pending record, and repeats
  the rest: no task reads the new topic before the layout is ready.
- Tasks of the older layout announce nothing of the new topic: they check the topic ids before each
  announcement, do not start while the newer layout exists, and are fenced before the offsets are
  set. What they announced of the former topic is committed: the change of the offsets follows it on
  the control topic.
- A broker that is behind reports a former id. An id is accepted when requests agree for
  ``CONFIRM_MS``, and it is none that the connector has left.
- A bounded run has end offsets of the former topic. It is not continued.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.offsets.offset_events import OffsetEvents
from connect.protocol.offset_loss import AnnouncedOffsets, announced_offsets
from connect.protocol.source_floor import RecreatedTopic, SourceFloor
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector

CONFIRM_MS = 3_000
FORMER_IDS_MAX = 20
SHOWN_MAX = 50

_log = logger("herder")


class RecreatedTopics:
    """Accepts recreated source topics; used by the leader, once at a time for a connector.

    Args:
        store: layouts and source floors.
        offset_events: sets source offsets.
    """

    def __init__(
        self,
        store: ConfigStore,
        admin: KafkaAdmin,
        offset_events: OffsetEvents,
        configs: ConnectorConfigs,
        clock: Clock,
    ) -> None:
        self._store = store
        self._admin = admin
        self._offset_events = offset_events
        self._configs = configs
        self._clock = clock
        self._found_at: dict[str, tuple[dict[str, str], int]] = {}

    def find(self, state: StoredConnector, config: ConnectorConfig) -> dict[str, str]:
        """Return the source topics with another id than in the layout, and record them as pending.

        Raises:
            Fenced: another node leads.
            RetriableError: the broker cannot be reached, or an id is not confirmed yet.
        """
        topic_ids = known_ids(state, config)
        if topic_ids:
            counter("source_topics_recreated", connector=config.name)  # 0 at first, for alerts
        replaced = replaced_topics(topic_ids, self._admin.topic_ids(topic_ids))
        before, since_ms = self._found_at.pop(config.name, (replaced, self._clock.monotonic_ms()))
        if not replaced:
            return {}
        if before != replaced or self._clock.monotonic_ms() - since_ms < CONFIRM_MS:
            since_ms = since_ms if before == replaced else self._clock.monotonic_ms()
            self._found_at[config.name] = replaced, since_ms
            raise _unsettled(config.name, replaced)
        with self._offset_events.changing:
            floor = self._store.get(config.name).source_floor
            pending = {
                topic: _pending(floor, topic, topic_ids[topic], replaced[topic])
                for topic in replaced
            }
            if any(recreated.topic_id in recreated.former_ids for recreated in pending.values()):
                raise _unsettled(config.name, replaced)
            pending = {
                t: _with_places(recreated, t, floor, state.layout)
                for t, recreated in pending.items()
            }
            self._store.put_source_floor(config.name, floor.with_recreated(pending))
        return replaced

    def settle(self, config: ConnectorConfig, layout: Layout) -> None:
        """Set the source offsets of pending topics to 0; every older task is fenced.

        Raises:
            Fenced: another node leads.
            RetriableError: the broker cannot be reached.
        """
        ids = dict(layout.topic_ids)
        with self._offset_events.changing:
            state = self._store.get(config.name)
            pending = {
                topic: each
                for topic, each in state.source_floor.recreated.items()
                if each.is_pending and each.topic_id == ids.get(topic)
            }
            if not pending:
                return
            announced = announced_offsets(
                config, self._configs.consumer_properties(config), self._admin, self._clock
            )
            recreated = {t: _with_announced(each, t, announced) for t, each in pending.items()}
            floor = state.source_floor.with_recreated(recreated)
            self._store.put_source_floor(config.name, floor)
            starts = {tp: 0 for tp in layout.partitions if tp.topic in recreated}
            former = {TopicPartition(t, p) for t, each in recreated.items() for p in each.lost_from}
            self._offset_events.set(
                self._store.get(config.name), config.connect_group_id, starts, also_moved=former
            )
            floor = self._store.get(config.name).source_floor
            done = {topic: replace(each, is_pending=False) for topic, each in recreated.items()}
            self._store.put_source_floor(config.name, floor.with_recreated(done))
        for topic, recreated_topic in sorted(done.items()):
            lost = sorted(recreated_topic.lost_from.items())[:SHOWN_MAX]
            _log.warning(
                "source topic was deleted and created again; it is read from its start, and "
                "records of the former topic are lost",
                connector=config.name,
                topic=topic,
                topic_id=recreated_topic.topic_id,
                former_topic_id=recreated_topic.former_ids[0],
                positions={f"{topic}-{partition}": at for partition, at in lost},
                code="source_topic_recreated",
            )
            counter("source_topics_recreated", connector=config.name).inc()


def known_ids(state: StoredConnector, config: ConnectorConfig) -> dict[str, str]:
    """Return the source topics whose id may change while the connector continues, with their ids.

    None if the connector stops then: by its setting, in a bounded run, or with a source cluster of
    its own, which the node does not know.
    """
    overrides = (config.consumer_overrides, config.kafka_overrides)
    is_foreign = any("bootstrap.servers" in override for override in overrides)
    if config.fail_on_data_loss or is_foreign or state.end is not None or state.layout is None:
        return {}
    ids = dict(state.layout.topic_ids)
    ids.pop(config.control_topic, None)
    return ids


def replaced_topics(stored: Mapping[str, str], present: Mapping[str, str]) -> dict[str, str]:
    """Return the topics that exist with another id, with that id."""
    return {
        topic: present[topic]
        for topic in stored
        if present.get(topic, stored[topic]) != stored[topic]
    }


def _pending(floor: SourceFloor, topic: str, known_id: str, present: str) -> RecreatedTopic:
    """Return the record of a topic, without the places of its partitions."""
    before = floor.recreated.get(topic)
    former = [known_id, floor.topic_ids.get(topic, known_id)]
    lost_from: Mapping[int, int] = {}
    if before is not None:
        former += [before.topic_id, *before.former_ids]
        lost_from = before.lost_from
        if before.topic_id == present and before.is_pending:  # a leader ended before the layout
            return replace(before, former_ids=_ids(former, present))
    if floor.topic_ids.get(topic) == present:  # it was read after the topic was created again
        former = [topic_id for topic_id in former if topic_id != present]
    return RecreatedTopic(present, _ids(former), lost_from, is_pending=True)


def _ids(former: list[str], present: str = "") -> tuple[str, ...]:
    return tuple(id_ for id_ in dict.fromkeys(former) if id_ != present)[:FORMER_IDS_MAX]


def _with_places(
    recreated: RecreatedTopic, topic: str, floor: SourceFloor, layout: Layout | None
) -> RecreatedTopic:
    """Add where each partition of the former topic was, by the source floor."""
    partitions = {*(layout.partitions if layout else ()), *floor.offsets}
    places = {
        tp.partition: floor.offsets.get(tp) or recreated.lost_from.get(tp.partition, 0)
        for tp in partitions
        if tp.topic == topic
    }
    return replace(recreated, lost_from={**recreated.lost_from, **places})


def _with_announced(
    recreated: RecreatedTopic, topic: str, announced: AnnouncedOffsets
) -> RecreatedTopic:
    """Replace the places by those that were announced, as far as the control topic has them."""
    places = {tp.partition: at for tp, at in announced.ends.items() if tp.topic == topic}
    return replace(recreated, lost_from={**recreated.lost_from, **places})


def _unsettled(connector: str, topic_ids: Mapping[str, str]) -> RetriableError:
    return RetriableError(
        f"topics {', '.join(sorted(topic_ids))} were created again; their ids are not "
        "confirmed yet",
        code="source_topic_recreated",
        connector=connector,
    )
