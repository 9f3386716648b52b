"""Deploys a connector: the leader writes its layout, fences older tasks, and marks it ready.

Rules of this file:
- The order is that of the protocol. First write the layout. Then let old tasks stop and take over
  every transactional id of the old and the new layout. Then write the ready record. A task of the
  new layout may start only after that.
- Every step may be the last one before a crash. The next ``converge``, on any node, finds the
  stored state and continues; it needs no memory of this one.
- Runs on a job's thread, once at a time for a connector.
- Start offsets (``icefloe.start.timestamp``) are stored in the config topic when all older tasks
  are fenced, and before the layout is ready. So every task of the connector starts at them.
- A connector with a committed offset, or that has had one (source floor), is not new. Its fixed
  offsets stay as they are, and partitions that appear later have none.
- As long as nothing is committed, each new layout fixes the offsets again: nothing was read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.reserved_topics import refuse_reserved
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.deployment.bounded_runs import BoundedRuns
from connect.node.herder.deployment.layout_planner import LayoutPlanner
from connect.node.herder.deployment.recreated_topics import RecreatedTopics
from connect.node.herder.offsets.offset_events import OffsetEvents
from connect.node.herder.offsets.offset_keeper import OffsetKeeper
from connect.node.herder.offsets.rewind import UNFINISHED
from connect.protocol.control_topic import CONTROL_TOPIC_CONFIG
from connect.protocol.fencing import operator_transactional_id, take_over, task_transactional_id
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.placement import Places

RESULTS_CONFIG = {"cleanup.policy": "compact"}

_log = logger("herder")
_SHOWN_MAX = 50


class StopUnits(Protocol):
    """Stops a connector's tasks on all nodes; returns when they have ended or the grace is over."""

    def __call__(self, *, with_coordinator: bool) -> None:
        """Stop the tasks, and if requested the coordinator after them."""
        ...


class StartPositions:
    """Start offsets of new connectors; used by the leader.

    Args:
        store: source floors, which contain the start offsets.
        changing: held while source floors are read and written.
    """

    def __init__(self, store: ConfigStore, admin: KafkaAdmin, changing: threading.Lock) -> None:
        self._store = store
        self._admin = admin
        self._changing = changing

    def fix(self, config: ConnectorConfig, layout: Layout) -> None:
        """Store the start offsets of a connector, if it is new and its configuration asks for it.

        Args:
            config: the connector.
            layout: the layout that becomes ready; all tasks of older layouts are fenced.

        Raises:
            Fenced: another node leads.
            RetriableError: the broker cannot be reached.
        """
        timestamp_ms = config.start.timestamp_ms
        with self._changing:
            floor = self._store.get(config.name).source_floor
            if floor.offsets or (timestamp_ms is None and not floor.starts):
                return
            if any(self._admin.committed_all(group) for group in config.member_groups):
                return
            starts, ids = {}, {}
            if timestamp_ms is not None:
                ids = self._admin.topic_ids({tp.topic for tp in layout.partitions})
                existing = [tp for tp in layout.partitions if tp.topic in ids]
                starts = self._admin.offsets_at(existing, timestamp_ms)
            if starts != floor.starts:
                self._store.put_source_floor(
                    config.name, replace(floor, starts=starts, topic_ids=ids)
                )
        displayed = sorted(starts.items())[:_SHOWN_MAX]
        _log.info(
            "start offsets fixed",
            connector=config.name,
            timestamp_ms=timestamp_ms,
            positions={f"{tp.topic}-{tp.partition}": offset for tp, offset in displayed},
        )


class Deployer:
    """Brings the stored layout of a connector in line with its configuration and the cluster.

    Args:
        admin: the cluster, with the node's own properties.
        clock: identities and times of events.
        bounded_runs: fixes and ends them.
        places_for: returns where a connector with so many tasks has to run; None when the stored
            placement is right.
        failed_tasks: task ids of a connector with FAILED as their last state.

    Attributes:
        offset_events: changes of source offsets by an operator.
    """

    def __init__(
        self,
        configs: ConnectorConfigs,
        planner: LayoutPlanner,
        store: ConfigStore,
        admin: KafkaAdmin,
        clock: Clock,
        *,
        bounded_runs: BoundedRuns,
        places_for: Callable[[str, int], Places | None],
        failed_tasks: Callable[[str], Collection[int]] = lambda _: (),
    ) -> None:
        self._configs = configs
        self._planner = planner
        self._store = store
        self._admin = admin
        self._bounded_runs = bounded_runs
        self._places_for = places_for
        self.offset_events = OffsetEvents(store, admin, clock, configs)
        self._starts = StartPositions(store, admin, self.offset_events.changing)
        self._recreated = RecreatedTopics(store, admin, self.offset_events, configs, clock)
        self._keeper = OffsetKeeper(
            store, admin, self.offset_events, clock, configs, failed_tasks=failed_tasks
        )

    def converge(self, name: str, stop: StopUnits) -> None:
        """Bring the stored layout in line with configuration, target state and metadata.

        Args:
            name: connector.
            stop: stops the connector's units on all nodes.

        Raises:
            ConfigError: the configuration cannot be run.
            DataLost: source topics or the control topic were deleted.
            Fenced: another node leads now.
            RetriableError: the broker cannot be reached.
        """
        state = self._bounded_runs.complete(self._store.get(name))
        if state.config is None:
            stop(with_coordinator=True)
            self._fence(state, None, tasks=state.tasks_ever)
        elif not state.is_to_run:
            stop(with_coordinator=True)
            if state.target != "STARTED" and state.is_stopped:
                self._clear(state)
        else:
            self._start(state, stop)

    def keep_offsets(self) -> None:
        """Store the offsets of units that do not run again, before the broker deletes them.

        Raises:
            Fenced: another node leads.
        """
        self._planner.check_announced()
        self._keeper.keep()

    def is_completed(self, state: StoredConnector) -> bool:
        """Return whether a bounded run was reported as complete, and that is not stored yet."""
        return self._bounded_runs.is_reported(state)

    def outdated(self) -> tuple[list[str], bool]:
        """Find connectors with an outdated layout; see ``LayoutPlanner.outdated``."""
        return self._planner.outdated()

    def _start(self, state: StoredConnector, stop: StopUnits) -> None:
        if state.rewind is not None:  # a request is refused before; other clients write the topic
            raise ConfigError(UNFINISHED.format(name=state.name), code="rewind_unfinished")
        config = self._configs.parsed(state)
        reserved = self._configs.reserved_topics()
        refuse_reserved(
            config.topics,
            config.errors.dead_letter_topic,
            reserved,
            config.outputs,
            aggregate_topic=config.aggregation.topic if config.aggregation else None,
        )
        self.offset_events.settle(state, config, config.connect_group_id)
        topics = self._admin.topics()
        state = self._bounded_runs.fix(state, config, topics, reserved)
        self._ensure_topics(config, topics)
        recreated = self._recreated.find(state, config)
        planned = self._planner.plan(state, config, topics, reserved, recreated)
        layout = planned or state.layout
        assert layout is not None
        if planned is None and state.is_ready:
            places = self._places_for(state.name, len(layout.tasks))
            if places is not None:
                self._store.put_places({state.name: places})
            return
        moved: Collection[TopicPartition] | None = None
        if state.layout is not None:
            removed = state.layout.partitions - layout.partitions
            # not ready: the partitions of the last layout that ran are unknown, so all of them
            moved = (removed or None) if state.is_ready else ()
        if planned is not None:
            self._store.put_layout(planned, config.raw)
            counter("layouts", connector=state.name).inc()
            _log.info(
                "layout written",
                connector=state.name,
                layout=planned.number,
                tasks=len(planned.tasks),
                partitions=len(planned.partitions),
            )
        stop(with_coordinator=False)
        self._make_ready(state, layout, config, moved=moved)

    def _clear(self, state: StoredConnector) -> None:
        """Write an empty layout for a stopped connector: then its offsets may be changed."""
        layout = state.layout
        if layout is None and not state.tasks_ever:
            return  # never ran
        if layout is None or layout.tasks:
            before = layout or Layout(state.name, 0, ())
            layout = replace(before, number=state.number_max + 1, tasks=())
            self._store.put_layout(layout, state.config or {})
        elif state.is_ready:
            return
        self._make_ready(state, layout, self._configs.valid(state))

    def _make_ready(
        self,
        state: StoredConnector,
        layout: Layout,
        config: ConnectorConfig | None,
        *,
        moved: Collection[TopicPartition] | None = None,
    ) -> None:
        """Fence older tasks, announce moved partitions, mark the layout ready.

        The announcement is sent after the fencing, when no older task can announce. Its producer
        is initialised at the same time as the fencing.

        Args:
            state: the connector.
            layout: the layout to mark.
            config: its configuration; None when it is not valid.
            moved: partitions that may start at other offsets; empty is all, None is none.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="fence") as pool:
            tasks = max(state.tasks_ever, len(layout.tasks))
            if config is not None and self._planner.has_unknown_layout(state.name):
                tasks = max(tasks, config.tasks_max)  # the number of its tasks is unknown
            fencing = pool.submit(
                self._fence, state, config, tasks=tasks, has_operator=moved is None
            )
            if moved is not None:
                self.offset_events.announce(state, moved, after=fencing.result)
            fencing.result()
        if config is not None:
            self._recreated.settle(config, layout)
            self._keep_group(state, config)
            if layout.tasks:
                self._starts.fix(config, layout)
        self._store.put_ready(layout, self._places_for(state.name, len(layout.tasks)))

    def _keep_group(self, state: StoredConnector, config: ConnectorConfig) -> None:
        """Make sure that the group's offsets expire one by one, then record the source floor.

        No task can write now. A group that has had members, as that of the Java sink, loses all
        its offsets a week after they left, even newly committed ones: it is created again.
        """
        group = config.connect_group_id
        if self._admin.has_had_members(group):
            self._store.put_offsets(state.name, self._admin.committed_all(group))
            self.offset_events.settle(self._store.get(state.name), config, group)
            _log.info("consumer group created again", connector=state.name, group=group)
        if state.layout is not None:
            self._keeper.note(self._store.get(state.name), config, state.layout.partitions)

    def _fence(
        self,
        state: StoredConnector,
        config: ConnectorConfig | None,
        *,
        tasks: int,
        has_operator: bool = True,
    ) -> None:
        group_id = self._configs.group_id
        ids = [task_transactional_id(group_id, state.name, task) for task in range(tasks)]
        if has_operator:
            ids.append(operator_transactional_id(group_id, state.name))
        topic = None if config is None else config.control_topic
        take_over(self._configs.producer_properties(config), ids, topic=topic)

    def _ensure_topics(self, config: ConnectorConfig, topics: Mapping[str, int]) -> None:
        if config.control_topic not in topics:
            self._admin.ensure_topic(config.control_topic, 1, CONTROL_TOPIC_CONFIG)
        results = config.aggregation
        if results is not None and results.topic not in topics:
            self._admin.ensure_topic(results.topic, results.topic_partitions, RESULTS_CONFIG)
        dead_letters = config.errors.dead_letter_topic
        if dead_letters and dead_letters not in topics:
            self._admin.ensure_topic(
                dead_letters,
                1,
                replication_factor=config.errors.dead_letter_replication_factor,
                replication_key="errors.deadletterqueue.topic.replication.factor",
            )
        for output in config.outputs:
            if output.topic and output.topic not in topics:
                self._admin.ensure_topic(
                    output.topic,
                    output.partitions,
                    replication_factor=output.replication_factor,
                    replication_key=f"icefloe.output.{output.name}.topic.replication.factor",
                )
