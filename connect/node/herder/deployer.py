"""From wish to reality, for one connector: the layout written, fenced, ready.

Rules of this file:
- The order is the protocol's: write the layout; let old tasks end and take over every
  transactional id of the old and the new layout; write the ready record. Only then may a task of
  the new layout start.
- Every step can be the last one before a crash. The next ``converge``, here or on another node,
  finds what is there and goes on; it needs no memory of this one.
- Runs on a thread of its own per connector, never twice at once for the same connector.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.node.node_config import NodeConfig
from connect.config.reserved_topics import control_topics, node_topics, refuse_reserved
from connect.errors import ConfigError, DataLost, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.assignment import next_layout, task_count, with_deleted_topics
from connect.node.herder.offset_events import OffsetEvents
from connect.node.herder.offset_keeper import OffsetKeeper
from connect.protocol.announced_layouts import newest_announced_layout
from connect.protocol.control_topic import CONTROL_TOPIC_CONFIG
from connect.protocol.fencing import operator_transactional_id, take_over, task_transactional_id
from connect.protocol.source_partitions import source_partitions
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.placement import Places
from connect.validation.parse import parse
from connect.validation.providers import Providers

_log = logger("herder")


class Deployer:
    """Makes a connector's layout what its configuration and the cluster ask for.

    Args:
        node: node configuration.
        providers: resolves placeholders.
        store: configurations and layouts.
        admin: the cluster, with the node's own properties.
        clock: identities and times of events.
        places_for: where a connector with so many tasks is to run; None when that is said already.
        failed_tasks: task ids of a connector whose last state is FAILED.
        nodes: number of nodes that can run tasks, and whether a layout may lose tasks over it.
    """

    def __init__(
        self,
        node: NodeConfig,
        providers: Providers,
        store: ConfigStore,
        admin: KafkaAdmin,
        clock: Clock,
        *,
        places_for: Callable[[str, int], Places | None],
        nodes: Callable[[], tuple[int, bool]],
        failed_tasks: Callable[[str], Collection[int]] = lambda _: (),
    ) -> None:
        self._node = node
        self._providers = providers
        self._store = store
        self._admin = admin
        self._places_for = places_for
        self._nodes = nodes
        self._seen: dict[str, frozenset[TopicPartition]] = {}
        self._node_topics = node_topics(node.properties)
        self._unknown_layouts: dict[str, int] = {}
        self._clock = clock
        self.moves = OffsetEvents(
            store,
            admin,
            clock,
            group_id=node.group_id,
            parsed=self.parsed,
            producer_properties=self._producer_properties,
        )
        self.keeper = OffsetKeeper(
            store,
            admin,
            self.moves,
            clock,
            group_id=node.group_id,
            producer_properties=self._producer_properties,
            failed_tasks=failed_tasks,
        )

    def converge(self, name: str, stop: Callable[[bool], None]) -> None:
        """Bring the stored layout in line with configuration, wish and metadata.

        Args:
            name: connector.
            stop: ends the connector's tasks, and its coordinator too when called with True, on
                all nodes; returns when they have ended or their grace is over.

        Raises:
            ConfigError: the configuration cannot be run.
            Fenced: another node leads now.
            RetriableError: the broker is away.
        """
        state = self._store.get(name)
        if state.config is None:
            stop(True)  # noqa: FBT003 - the callable's one argument
            self._fence(state, None, tasks=state.tasks_ever)
        elif state.target != "STARTED":
            stop(True)  # noqa: FBT003
            if state.is_stopped:
                self._clear(state)
        else:
            self._start(state, stop)

    def settle_offsets(self, state: StoredConnector, group_id: str) -> None:
        """Set the source offsets that are to be set, and say that they are.

        Raises:
            RetriableError: the broker is away; to be tried again before anything starts.
        """
        try:
            config = self.parsed(state)
        except ConfigError:
            config = None
        self.moves.settle(state, config, group_id)

    def keep_offsets(self) -> None:
        """Store again the offsets of what does not run, before the broker forgets them.

        Raises:
            Fenced: another node leads.
        """
        for name in self._store.names():
            state = self._store.get(name)
            if state.target == "STARTED" and state.is_ready:
                with contextlib.suppress(ConfigError, RetriableError):
                    self._unknown_layout(state, self.parsed(state))
        self.keeper.keep()

    def _unknown_layout(self, state: StoredConnector, config: ConnectorConfig) -> int:
        """The newest layout that was announced and that the config topic does not know, else 0.

        Looked for once by a leader: a config topic that was lost or restored from a copy is behind
        the control topic. One that knows no layout may have been lost long ago.
        """
        found = self._unknown_layouts.get(state.name)
        if found is None:
            found = newest_announced_layout(
                config,
                client_properties(
                    self._providers.resolve_all(self._node.properties),
                    self._providers.resolve_all(config.kafka_overrides),
                    prefix="consumer.",
                ),
                self._admin,
                self._clock,
                is_whole=not state.number_max,
            )
            self._unknown_layouts[state.name] = found = found if found > state.number_max else 0
            if found:
                _log.warning(
                    "tasks have announced from layouts that the config topic does not know",
                    connector=state.name, known=state.number_max, announced=found,
                )  # fmt: skip
        return found if found > (state.layout.number if state.layout else 0) else 0

    def outdated(self) -> tuple[list[str], bool]:
        """Connectors whose partitions are not those of their layout any more.

        What has vanished must be away on two looks in a row: a broker that has just started may
        not know every topic yet, and a layout without it would only have to be taken back.

        Returns:
            The connectors, and whether anything has vanished that the next look decides.

        Raises:
            RetriableError: the broker is away.
        """
        topics = self._admin.topics()
        reserved = self._reserved_topics()
        found = self._with_other_control_topic()
        is_open = False
        for name in self._store.names():
            state = self._store.get(name)
            if state.target != "STARTED" or not state.is_ready or state.layout is None:
                continue
            with contextlib.suppress(ConfigError):  # told when it was to be started
                config = self.parsed(state)
                now = frozenset(self._partitions(config, state, topics, reserved))
                before, self._seen[name] = self._seen.get(name), now
                has_grown_only = now > state.layout.partitions
                nodes, may_shrink = self._nodes()
                count = task_count(config, nodes=nodes, partitions=len(now))
                has_other_count = count > len(state.layout.tasks) or (
                    may_shrink and count < len(state.layout.tasks)
                )
                is_behind = self._unknown_layouts.get(name, 0) >= state.layout.number
                has_other = now != state.layout.partitions and (has_grown_only or now == before)
                if has_other or has_other_count or is_behind:
                    found.append(name)
                elif now != state.layout.partitions:
                    is_open = True
        return found, is_open

    def _with_other_control_topic(self) -> list[str]:
        """Running connectors whose control topic is gone, or another than it was."""
        known: dict[str, tuple[str, str]] = {}
        for name in self._store.names():
            state = self._store.get(name)
            with contextlib.suppress(ConfigError):
                topic = self.parsed(state).control_topic
                topic_id = dict(state.layout.topic_ids).get(topic) if state.layout else None
                if state.target == "STARTED" and state.is_ready and topic_id is not None:
                    known[name] = topic, topic_id
        now = self._admin.topic_ids({topic for topic, _ in known.values()})
        return [name for name, (topic, was) in known.items() if now.get(topic) != was]

    def _reserved_topics(self) -> frozenset[str]:
        """Topics that no connector may read or send dead letters to, as of now."""
        configs = [self._store.get(name).config or {} for name in self._store.names()]
        return self._node_topics | control_topics(configs, self._providers.resolve)

    def _partitions(
        self,
        config: ConnectorConfig,
        state: StoredConnector,
        topics: Mapping[str, int],
        reserved: frozenset[str],
    ) -> list[TopicPartition]:
        found = source_partitions(config, topics, excluded=reserved)
        return with_deleted_topics(config, state, found)

    def _topic_ids(
        self, config: ConnectorConfig, state: StoredConnector, partitions: list[TopicPartition]
    ) -> dict[str, str]:
        """Identities of the connector's topics: those known, and those of topics that are new.

        Raises:
            DataLost: ``control_log_reset``, ``source_topic_deleted``.
        """
        known = dict(state.layout.topic_ids) if state.layout else {}
        control = config.control_topic
        names = {tp.topic for tp in partitions}
        now = self._admin.topic_ids({*names, control})
        if known.get(control, now.get(control)) != now.get(control):
            raise DataLost(
                f"control topic {control} was deleted and created anew: what was announced and not "
                "committed is gone; see icefloe control rebase",
                code="control_log_reset",
                connector=state.name,
                topic=control,
                topic_id=known[control],
            )
        if config.topics_regex is None and (gone := known.keys() & {*config.topics} - names):
            raise DataLost(
                f"source topics were deleted: {', '.join(sorted(gone))}; take them out of topics, "
                "or reset their offsets to go on without what was not read",
                code="source_topic_deleted",
                connector=state.name,
            )
        unknown = {*names, control} - known.keys() - now.keys()
        if unknown:  # listed a moment ago
            raise RetriableError(
                f"topics {', '.join(sorted(unknown))} cannot be described", code="topic_missing"
            )
        return {name: known.get(name) or now[name] for name in {*names, control}}

    def parsed(self, state: StoredConnector) -> ConnectorConfig:
        """The connector's configuration, typed; no secret is in it.

        Raises:
            ConfigError: it is not valid.
        """
        return parse(
            state.config or {}, node=self._node.properties, resolve=self._providers.resolve
        )

    def group_of(self, state: StoredConnector) -> str:
        """Consumer group of its source offsets, also when its configuration is not valid."""
        try:
            return self.parsed(state).connect_group_id
        except ConfigError:
            return f"connect-{state.name}"

    def _start(self, state: StoredConnector, stop: Callable[[bool], None]) -> None:
        config = self.parsed(state)
        reserved = self._reserved_topics()
        refuse_reserved(config.topics, config.errors.dead_letter_topic, reserved)
        self.settle_offsets(state, config.connect_group_id)
        topics = self._admin.topics()
        self._ensure_topics(config, topics)
        partitions = self._partitions(config, state, topics, reserved)
        topic_ids = self._topic_ids(config, state, partitions)
        nodes, may_shrink = self._nodes()
        if state.is_ready and state.layout is not None and state.layout.tasks:
            unknown = self._unknown_layouts.get(state.name, 0)  # ``keep_offsets`` looks for it
        else:
            unknown = self._unknown_layout(state, config)
        wanted = next_layout(
            state,
            config,
            partitions,
            nodes=nodes,
            may_shrink=may_shrink,
            above=unknown,
            topic_ids=topic_ids,
        )
        layout = wanted or state.layout
        assert layout is not None
        if wanted is None and state.is_ready:
            places = self._places_for(state.name, len(layout.tasks))
            if places is not None:
                self._store.put_places({state.name: places})
            return
        moved: Collection[TopicPartition] | None = None
        if state.layout is not None:
            gone = state.layout.partitions - layout.partitions
            # after a crash in the middle it is not known what the last one that ran had: all
            moved = (gone or None) if state.is_ready else ()
        if wanted is not None:
            self._store.put_layout(wanted, state.config or {})
            counter("layouts", connector=state.name).inc()
            _log.info(
                "layout written",
                connector=state.name,
                layout=wanted.number,
                tasks=len(wanted.tasks),
                partitions=len(wanted.partitions),
            )
        stop(False)  # noqa: FBT003
        self._make_ready(state, layout, config, moved=moved)

    def _clear(self, state: StoredConnector) -> None:
        """No task of a stopped connector can write any more: its offsets may be changed."""
        layout = state.layout
        if layout is None and not state.tasks_ever:
            return  # never ran
        if layout is None or layout.tasks:
            before = layout or Layout(state.name, 0, ())
            layout = replace(before, number=state.number_max + 1, tasks=())
            self._store.put_layout(layout, state.config or {})
        elif state.is_ready:
            return
        try:
            config = self.parsed(state)
        except ConfigError:
            config = None
        self._make_ready(state, layout, config)

    def _make_ready(
        self,
        state: StoredConnector,
        layout: Layout,
        config: ConnectorConfig | None,
        *,
        moved: Collection[TopicPartition] | None = None,
    ) -> None:
        """Fence, say of what has moved (empty: all) that it may begin anew, and be ready.

        It is said when nobody can announce anything of it any more, by a producer that is made
        ready meanwhile.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="fence") as aside:
            tasks = max(state.tasks_ever, len(layout.tasks))
            if config is not None and self._unknown_layouts.get(state.name):
                tasks = max(tasks, config.tasks_max)  # it is not known how many there were
            fencing = aside.submit(
                self._fence, state, config, tasks=tasks, has_operator=moved is None
            )
            if moved is not None:
                self.moves.announce(state, moved, after=fencing.result)
            fencing.result()
        if config is not None:
            self._take_group(state, config)
        self._store.put_ready(layout, self._places_for(state.name, len(layout.tasks)))

    def _take_group(self, state: StoredConnector, config: ConnectorConfig) -> None:
        """Note what is committed, in a group that the broker forgets offset by offset.

        No task can write here. A group that consumers were members of, as the Java sink's, would
        lose all offsets a week after they left, whatever is stored meanwhile: it is made again.
        """
        group = config.connect_group_id
        if self._admin.has_had_members(group):
            self._store.put_offsets(state.name, self._admin.committed_all(group))
            self.moves.settle(self._store.get(state.name), config, group)
            _log.info("consumer group made again", connector=state.name, group=group)
        if state.layout is not None:
            self.keeper.note(self._store.get(state.name), config, state.layout.partitions)

    def _fence(
        self,
        state: StoredConnector,
        config: ConnectorConfig | None,
        *,
        tasks: int,
        has_operator: bool = True,
    ) -> None:
        group_id = self._node.group_id
        ids = [task_transactional_id(group_id, state.name, task) for task in range(tasks)]
        if has_operator:
            ids.append(operator_transactional_id(group_id, state.name))
        take_over(self._producer_properties(config), ids)

    def _producer_properties(self, config: ConnectorConfig | None) -> dict[str, str]:
        node = self._providers.resolve_all(self._node.properties)
        overrides: list[Mapping[str, str]] = []
        if config is not None:
            overrides = [
                self._providers.resolve_all(config.producer_overrides),
                self._providers.resolve_all(config.kafka_overrides),
            ]
        return client_properties(node, *overrides, prefix="producer.")

    def _ensure_topics(self, config: ConnectorConfig, topics: Mapping[str, int]) -> None:
        if config.control_topic not in topics:
            self._admin.ensure_topic(config.control_topic, 1, CONTROL_TOPIC_CONFIG)
        dead_letters = config.errors.dead_letter_topic
        if dead_letters and dead_letters not in topics:
            self._admin.ensure_topic(
                dead_letters, 1, replication_factor=config.errors.dead_letter_replication_factor
            )
