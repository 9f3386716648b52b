"""Checks at intervals that the control topic is complete, and that no other sink uses it."""

from __future__ import annotations

from collections.abc import Collection

import structlog

from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.protocol.java_sink_members import GROUP_IN_USE, refuse_members
from connect.protocol.lso_monitor import LsoMonitor
from coordinator.control_log_check import GROWN, ControlLogCheck
from coordinator.coordinator_context import CoordinatorContext
from coordinator.kernel.announcements import Announcements

LSO_POLL_MS_MAX = 15_000
SINK_POLL_MS = 2_000
"""A member gets partitions 3 s after it joined (``group.initial.rebalance.delay.ms``)."""

log = structlog.get_logger("coordinator")


class ControlTopicWatch:
    """Checks now and then that the control topic is whole and can be read.

    Args:
        config: the connector.
        context: the process around the coordinator.
        admin: the cluster.
        control: checks the topic.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        context: CoordinatorContext,
        admin: KafkaAdmin,
        control: ControlLogCheck,
    ) -> None:
        self._topic = config.control_topic
        self._groups = config.member_groups
        self._sink_poll_at_ms = 0
        self._context = context
        self._admin = admin
        self._control = control
        self._check_at_ms = context.clock.monotonic_ms() + context.poll_ms
        self._stalls = LsoMonitor(config.lso_stalled_ms, config.name)
        self._lso_poll_ms = min(LSO_POLL_MS_MAX, max(1, config.lso_stalled_ms // 4))
        self._lso_poll_at_ms = 0

    def check(self, read: Collection[int], announcements: Announcements) -> None:
        """Check identity, settings, partitions and retention, when that is due.

        Args:
            read: control partitions that are read.
            announcements: what is in no table yet.

        Raises:
            DataLost: ``control_log_reset``, ``control_log_compacted``.
            RetriableError: ``control_partitions_added``.
        """
        clock = self._context.clock
        now_ms = clock.monotonic_ms()
        if now_ms < self._check_at_ms:
            return
        self._check_at_ms = now_ms + self._context.poll_ms
        try:
            self._control.check()
            self._control.check_partitions(read)
            retention = self._control.retention(list(announcements.kept()), clock.now_ms())
            self._context.on_event("retention", retention)
        except RetriableError as e:
            if e.code == GROWN:
                raise
            # a broker that is away also fails the next read or write
            log.info("the control topic could not be checked", error=str(e))

    def refuse_other_sinks(self) -> None:
        """Check that no Java sink has joined the connector's groups, when that is due.

        Its tasks would answer a StartCommit with the records that the tasks of this connector read.

        Raises:
            RetriableError: ``group_in_use``.
        """
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._sink_poll_at_ms:
            return
        try:
            refuse_members(self._admin, self._groups)
        except RetriableError as e:
            if e.code == GROUP_IN_USE:
                raise
            log.info("the groups of the connector could not be checked", error=str(e))
        self._sink_poll_at_ms = now_ms + SINK_POLL_MS

    def due_in_ms(self) -> int:
        """Return the milliseconds until ``check`` or ``stalled_ends`` has work."""
        due_ms = min(self._check_at_ms, self._lso_poll_at_ms)
        return max(0, due_ms - self._context.clock.monotonic_ms())

    def stalled_ends(self, read: Collection[int]) -> dict[int, int] | None:
        """Report transactions that hang on the control topic and hold back every announcement.

        Args:
            read: control partitions that are read.

        Returns:
            Control partition -> end of the log; None when no check was due or the broker is away.
        """
        now_ms = self._context.clock.monotonic_ms()
        if now_ms < self._lso_poll_at_ms:
            return None
        self._lso_poll_at_ms = now_ms + self._lso_poll_ms
        partitions = [TopicPartition(self._topic, number) for number in read]
        try:
            ends = self._admin.high_watermarks(partitions)
            stalled = self._stalls.inspect(self._admin.ends(partitions), ends, now_ms)
        except RetriableError as e:
            log.info("the control topic could not be checked", error=str(e))
            return None
        self._context.on_event("stalled", {"partitions": stalled})
        return {tp.partition: end for tp, end in ends.items()}

    def ends(self, read: Collection[int]) -> dict[int, int]:
        """Return control partition -> end of the log.

        Raises:
            RetriableError: the broker is away.
        """
        partitions = [TopicPartition(self._topic, number) for number in read]
        return {tp.partition: end for tp, end in self._admin.high_watermarks(partitions).items()}
