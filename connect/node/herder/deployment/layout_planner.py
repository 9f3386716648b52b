"""The plan of the leader: which layout a connector needs, and which layouts are outdated.

Rules of this file:
- Nothing is written. The plan is computed from the stored state, the configuration and the present
  metadata of the cluster.
- Layout numbers are kept in the config topic. If that was lost, or restored from a copy, the
  control topic may hold announcements of layouts with higher numbers. The next layout must be above
  them, or its rounds would never be complete and its steps would be ordered before theirs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, DataLost, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.logs import logger
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.deployment.assignment import next_layout, task_count, with_deleted_topics
from connect.node.herder.deployment.recreated_topics import known_ids, replaced_topics
from connect.protocol.control_topic import read_to_end
from connect.protocol.source_partitions import source_partitions
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector

LAYOUT_NUMBER_MAX = 10**12
"""Higher numbers in announcements are ignored: no cluster writes so many layouts."""

_log = logger("herder")


class LayoutPlanner:
    """Plans layouts.

    Args:
        admin: the cluster, with the node's own properties.
        nodes: number of nodes that can run tasks, and whether a layout may lose tasks over it.
    """

    def __init__(
        self,
        configs: ConnectorConfigs,
        store: ConfigStore,
        admin: KafkaAdmin,
        clock: Clock,
        *,
        nodes: Callable[[], tuple[int, bool]],
    ) -> None:
        self._configs = configs
        self._store = store
        self._admin = admin
        self._clock = clock
        self._nodes = nodes
        self._last_partitions: dict[str, frozenset[TopicPartition]] = {}
        self._unknown_layouts: dict[str, int] = {}

    def plan(
        self,
        state: StoredConnector,
        config: ConnectorConfig,
        topics: Mapping[str, int],
        reserved: frozenset[str],
        recreated: Mapping[str, str] = MappingProxyType({}),
    ) -> Layout | None:
        """Return the layout to write; None when the stored one is right.

        Args:
            state: the connector.
            config: its configuration.
            topics: partition count of every topic of the cluster.
            reserved: topics that no connector may read.
            recreated: source topics that were created again, with the ids to accept.

        Raises:
            ConfigError: ``topics.regex`` is not a regular expression.
            DataLost: ``control_log_reset``, ``source_topic_deleted``.
            RetriableError: the broker cannot be reached.
        """
        partitions = self._partitions(config, state, topics, reserved)
        topic_ids = self._topic_ids(config, state, partitions)
        topic_ids |= {topic: recreated[topic] for topic in topic_ids.keys() & recreated.keys()}
        nodes, may_shrink = self._nodes()
        if state.is_ready and state.layout is not None and state.layout.tasks:
            unknown = self._unknown_layouts.get(state.name, 0)  # ``check_announced`` finds it
        else:
            unknown = self._unknown_layout(state, config)
        return next_layout(
            state,
            config,
            partitions,
            nodes=nodes,
            may_shrink=may_shrink,
            above=unknown,
            topic_ids=topic_ids,
        )

    def outdated(self) -> tuple[list[str], bool]:
        """Find connectors with a layout that does not have the present partitions.

        A partition that has vanished must be missing in two calls in a row. A broker that has just
        started may not know every topic yet, and a layout without it would be replaced again.

        Returns:
            The connectors, and whether anything has vanished that the next call decides.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        topics = self._admin.topics()
        reserved = self._configs.reserved_topics()
        changed = self._with_other_topics()
        is_open = False
        for name in self._store.names():
            state = self._store.get(name)
            if not state.is_to_run or not state.is_ready or state.layout is None:
                continue
            with contextlib.suppress(ConfigError):  # reported when it was to be started
                config = self._configs.parsed(state)
                now = frozenset(self._partitions(config, state, topics, reserved))
                before = self._last_partitions.get(name)
                self._last_partitions[name] = now
                has_grown_only = now > state.layout.partitions
                has_other = now != state.layout.partitions and (has_grown_only or now == before)
                is_behind = self._unknown_layouts.get(name, 0) >= state.layout.number
                if has_other or is_behind or self._has_other_count(state.layout, config, len(now)):
                    changed.append(name)
                elif now != state.layout.partitions:
                    is_open = True
        return changed, is_open

    def check_announced(self) -> None:
        """Find announcements of layouts that the config topic does not know, of what runs."""
        for name in self._store.names():
            state = self._store.get(name)
            if state.is_to_run and state.is_ready:
                with contextlib.suppress(ConfigError, RetriableError):
                    self._unknown_layout(state, self._configs.parsed(state))

    def has_unknown_layout(self, name: str) -> bool:
        """Return whether a layout was announced that the config topic does not know."""
        return bool(self._unknown_layouts.get(name))

    def _has_other_count(self, layout: Layout, config: ConnectorConfig, partitions: int) -> bool:
        nodes, may_shrink = self._nodes()
        count = task_count(config, nodes=nodes, partitions=partitions)
        return count > len(layout.tasks) or (may_shrink and count < len(layout.tasks))

    def _unknown_layout(self, state: StoredConnector, config: ConnectorConfig) -> int:
        """Return the newest announced layout that the config topic does not know, else 0.

        A leader reads the control topic once per connector. If the config topic knows no layout of
        it, that may have been lost long ago: then the whole control topic is read.
        """
        newest = self._unknown_layouts.get(state.name)
        if newest is None:
            newest = newest_announced_layout(
                config,
                self._configs.consumer_properties(config),
                self._admin,
                self._clock,
                is_whole=not state.number_max,
            )
            newest = newest if newest > state.number_max else 0
            self._unknown_layouts[state.name] = newest
            if newest:
                _log.warning(
                    "tasks have announced from layouts that the config topic does not know",
                    connector=state.name,
                    known=state.number_max,
                    announced=newest,
                )
        return newest if newest > (state.layout.number if state.layout else 0) else 0

    def _with_other_topics(self) -> list[str]:
        """Return the running connectors with another control topic, or a source topic to accept."""
        control: dict[str, dict[str, str]] = {}
        sources: dict[str, dict[str, str]] = {}
        for name in self._store.names():
            state = self._store.get(name)
            with contextlib.suppress(ConfigError):
                config = self._configs.parsed(state)
                topic = config.control_topic
                topic_id = dict(state.layout.topic_ids).get(topic) if state.layout else None
                if state.is_to_run and state.is_ready:
                    control[name] = {} if topic_id is None else {topic: topic_id}
                    sources[name] = known_ids(state, config)
        now = self._admin.topic_ids(
            {t for ids in (*control.values(), *sources.values()) for t in ids}
        )
        return [
            name
            for name, ids in control.items()
            if any(now.get(topic) != was for topic, was in ids.items())
            or replaced_topics(sources[name], now)
        ]

    def _partitions(
        self,
        config: ConnectorConfig,
        state: StoredConnector,
        topics: Mapping[str, int],
        reserved: frozenset[str],
    ) -> list[TopicPartition]:
        partitions = source_partitions(config, topics, excluded=reserved)
        if state.end is not None and config.end is not None:  # later partitions are not in the run
            partitions = [tp for tp in partitions if tp in state.end.offsets]
        return with_deleted_topics(config, state, partitions)

    def _topic_ids(
        self, config: ConnectorConfig, state: StoredConnector, partitions: list[TopicPartition]
    ) -> dict[str, str]:
        """Return the ids of the connector's topics: the known ones, and those of new topics.

        Raises:
            DataLost: ``control_log_reset``, ``source_topic_deleted``.
        """
        stored_ids = dict(state.layout.topic_ids) if state.layout else {}
        control = config.control_topic
        names = {tp.topic for tp in partitions}
        now = self._admin.topic_ids({*names, control})
        if stored_ids.get(control, now.get(control)) != now.get(control):
            raise DataLost(
                f"control topic {control} was deleted and created again: announcements that were "
                "not committed are gone; see icefloe control rebase",
                code="control_log_reset",
                connector=state.name,
                topic=control,
                topic_id=stored_ids[control],
            )
        if config.topics_regex is None and (
            deleted := stored_ids.keys() & {*config.topics} - names
        ):
            raise DataLost(
                f"source topics were deleted: {', '.join(sorted(deleted))}; remove them from "
                "topics, or reset their offsets to continue without the records that were not read",
                code="source_topic_deleted",
                connector=state.name,
            )
        unknown = {*names, control} - stored_ids.keys() - now.keys()
        if unknown:  # the broker has just listed them
            raise RetriableError(
                f"topics {', '.join(sorted(unknown))} cannot be described", code="topic_missing"
            )
        return {name: stored_ids.get(name) or now[name] for name in {*names, control}}


def newest_announced_layout(
    config: ConnectorConfig,
    kafka: Mapping[str, str],
    admin: KafkaAdmin,
    clock: Clock,
    *,
    is_whole: bool,
) -> int:
    """Return the highest layout number of the connector's announcements; 0 if there are none.

    Args:
        config: the connector.
        kafka: Java-named properties of a consumer.
        admin: the cluster.
        clock: for bounded waits.
        is_whole: read the whole control topic. Otherwise reading begins at the committed control
            offsets of the connector, as events below them are never read again.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    topic, group = config.control_topic, config.connect_group_id
    partitions = admin.partitions(topic)
    marks = admin.watermarks(partitions)
    starts = {tp: start for tp, (start, _) in marks.items()}
    if not is_whole:
        for tp, at in admin.committed(config.control_group_id, partitions).items():
            starts[tp] = max(starts[tp], at or 0)
    newest = 0
    reader = LogReader(kafka)
    try:
        for record in read_to_end(
            reader,
            starts,
            {tp: end for tp, (_, end) in marks.items()},
            clock,
            holding=group.encode(),
        ):
            if record.event is not None and record.event.group_id == group:
                number = record.headers.layout or 0
                newest = max(newest, number if number <= LAYOUT_NUMBER_MAX else 0)
    finally:
        reader.close()
    return newest
