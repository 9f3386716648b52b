"""A task's source partitions in Kafka: where reading starts, how far it can go, what is lost.

Rules of this file:
- A topic that was deleted and created again has the same name and other records. An offset of the
  old topic means nothing in the new one. Only the topic id tells the two apart.
- Topic ids are checked before the first read and before each announcement. So a task never
  announces records that it read from another topic at an old offset.
- The request for the ids may be sent as soon as the records are in memory, while they become files.
  It is dropped if anything is read after it.
- An offset is never guessed. A partition without a committed offset starts from a setting only if
  it was never read before (``connect.protocol.start_offsets``). One that was read continues where
  its last announcement ended, if the connector continues after data loss and that is certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from connect.errors import DataLost, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties
from connect.model.layout import TopicPartition
from connect.protocol.java_sink_members import committed_offsets
from connect.protocol.lso_monitor import LsoMonitor
from connect.protocol.offset_loss import OffsetLoss
from connect.protocol.source_floor import SourceFloor
from connect.protocol.start_offsets import first_offsets
from control_schemas.events import LostRange
from worker.spark.source_options import check_positions
from worker.task.read_ledger import Offsets
from worker.task.task_context import TaskSetup

CHECK_ATTEMPTS = 5  # a new partition leader may not know at once how far its log is committed
CHECK_INTERVAL_MS = 1_000
POSITIONS_LOGGED_MAX = 50

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class SourceLog:
    """The source partitions of one task.

    Args:
        setup: the task.
        admin: the cluster; the caller closes it.
    """

    setup: TaskSetup
    admin: KafkaAdmin
    _lso_monitor: LsoMonitor = field(init=False)
    _requested_ids: Callable[[], dict[str, str]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        config = self.setup.config
        self._lso_monitor = LsoMonitor(config.lso_stalled_ms, config.name)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that the task reads."""
        return self.setup.assignment.partitions

    def start_offsets(
        self, floor: SourceFloor, store: Callable[[Offsets], None]
    ) -> dict[TopicPartition, int]:
        """Return the committed source offsets; of new partitions those that the settings give.

        The latter are stored at once: after a crash before the first announcement, the next start
        must begin at the same offsets.

        Args:
            floor: partitions that were read before, and fixed start offsets, by the config topic.
            store: stores source offsets with the fenced producer.

        Raises:
            DataLost: a topic is another one, a partition that was read before has no committed
                offset, or the log does not contain a start offset.
            RetriableError: the broker does not answer.
        """
        self.check_topics({})
        setup = self.setup
        committed = committed_offsets(self.admin, setup.config, self.partitions)
        watermarks = self.admin.watermarks(self.partitions)
        missing = {tp: watermarks[tp] for tp, offset in committed.items() if offset is None}
        recovered: dict[TopicPartition, int] = {}
        if missing:
            kafka = client_properties(
                setup.context.node, setup.config.kafka_overrides, prefix="consumer."
            )
            loss = OffsetLoss(setup.config, kafka, self.admin, setup.clock)
            recovered = loss.recover_partitions(missing, floor, dict(setup.assignment.topic_ids))
            self._report_recovered(recovered)
        new = recovered | first_offsets(
            setup.config.start,
            {tp: ends for tp, ends in missing.items() if tp not in recovered},
            fixed=floor.starts_of(missing, dict(setup.assignment.topic_ids)),
            admin=self.admin,
            now_ms=setup.clock.now_ms(),
        )
        starts = {tp: offset for tp, offset in committed.items() if offset is not None} | new
        self.check_positions(starts)
        if new:
            store(new)
        return starts

    def recreated(self, floor: SourceFloor, starts: Offsets) -> dict[TopicPartition, int]:
        """Return where the lost records of recreated topics begin, of partitions not announced yet.

        The leader sets their source offsets to 0, and the first announcement of a partition moves
        its offset together with the report of the loss. So each loss is announced once.
        """
        topic_ids = dict(self.setup.assignment.topic_ids)
        unread = [tp for tp, at in starts.items() if not at]
        lost_from = floor.lost_from(unread, topic_ids)
        self.setup.losses.add(LostRange(*tp, at, None) for tp, at in lost_from.items())
        return lost_from

    def _report_recovered(self, recovered: Offsets) -> None:
        """Log and report partitions that continue without a committed offset."""
        setup = self.setup
        if not recovered:
            return
        shown = sorted(recovered.items())[:POSITIONS_LOGGED_MAX]
        log.warning(
            "committed source offsets are gone; the task continues after the last announcement",
            partitions=len(recovered),
            positions={f"{tp.topic}-{tp.partition}": at for tp, at in shown},
            code="offsets_lost",
            **setup.log_labels,
        )
        setup.losses.recovered |= recovered
        setup.metrics.announcement.source_positions_recovered += len(recovered)

    def ends(self, next_offsets: Offsets) -> dict[TopicPartition, int]:
        """Return per partition how far committed records can be read (the last stable offset).

        Raises:
            DataLost: a log ends before the offset to be read next.
            RetriableError: the broker does not answer.
        """
        ends = self.admin.ends(self.partitions)
        if any(end < next_offsets[tp] for tp, end in ends.items()):
            self.check_positions(next_offsets)
        return ends

    def readable(self, ends: Offsets) -> Offsets:
        """Return per partition how far the task reads: in a bounded run not past its end."""
        bounds = self.setup.assignment.ends
        if bounds is None:
            return ends
        return {tp: min(end, bounds.get(tp, 0)) for tp, end in ends.items()}

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return per partition the end of the log, records of open transactions included."""
        return self.admin.high_watermarks(self.partitions)

    def stalled_count(self, ends: Offsets, high_watermarks: Offsets, now_ms: int) -> int:
        """Return how many partitions an open transaction blocks (monotonic clock); log new ones."""
        return self._lso_monitor.inspect(ends, high_watermarks, now_ms)

    def check_positions(self, positions: Offsets) -> None:
        """Check that each log contains every record from its position on.

        A connector that continues after data loss may have positions below the start of a log.

        Raises:
            DataLost: it does not, and repeated checks agree.
        """
        self._check(lambda: self._check_positions(positions))

    def log_starts_above(self, positions: Offsets) -> dict[TopicPartition, int]:
        """Return the start of each log whose start is above its position.

        Raises:
            RetriableError: the broker does not answer.
        """
        logs = self.admin.watermarks(self.partitions)
        return {tp: logs[tp][0] for tp, at in positions.items() if at < logs[tp][0]}

    def _check_positions(self, positions: Offsets) -> None:
        logs = self.admin.watermarks(self.partitions)
        if not self.setup.config.fail_on_data_loss:
            positions = {tp: max(at, logs[tp][0]) for tp, at in positions.items()}
        check_positions(positions, logs)

    def request_topic_ids(self) -> None:
        """Send the request of the next ``check_topics``: all records are read that it is for.

        Raises:
            RetriableError: the client cannot send it.
        """
        self._requested_ids = self.admin.request_topic_ids(self.setup.assignment.own_topic_ids)

    def drop_request(self) -> None:
        """Send the request of the next ``check_topics`` again: more records are read."""
        self._requested_ids = None

    def check_topics(self, positions: Offsets) -> None:
        """Check that every topic exists and has the topic id of the layout.

        Args:
            positions: next offset of each partition, where known; named in the error.

        Raises:
            DataLost: ``source_topic_recreated``, ``source_topic_deleted``; repeated checks agree.
            RetriableError: ``topic_missing`` for a topic that matched ``topics.regex``;
                ``source_topic_recreated`` if the connector continues after data loss.
        """
        self._check(lambda: self._check_topic_ids(positions))

    def _check_topic_ids(self, positions: Offsets) -> None:
        expected = self.setup.assignment.own_topic_ids
        requested, self._requested_ids = self._requested_ids, None
        ids = self.admin.topic_ids(expected) if requested is None else requested()
        for topic, topic_id in sorted(expected.items()):
            current = ids.get(topic)
            if current == topic_id:
                continue
            if current is None and self.setup.config.topics_regex is not None:
                self.setup.context.topic_missing()
                raise RetriableError("the topic was deleted", code="topic_missing", topic=topic)
            if current is not None and self._continues():
                self.setup.context.topic_missing()  # the leader then accepts the new topic
                raise RetriableError(
                    "the topic was deleted and created again; the leader accepts the new one",
                    code="source_topic_recreated",
                    topic=topic,
                )
            again = "" if current is None else f" and created again with topic id {current}"
            read = {tp.partition: at for tp, at in sorted(positions.items()) if tp.topic == topic}
            raise DataLost(
                f"topic {topic} was deleted{again}; its records that were not yet announced are "
                "lost",
                code="source_topic_deleted" if current is None else "source_topic_recreated",
                topic=topic,
                topic_id=topic_id,
                read_up_to=read or None,
            )

    def _continues(self) -> bool:
        """Return whether a topic that was created again is read from its start.

        A bounded run ends at offsets of the former topic, so it stops.
        """
        setup = self.setup
        return not setup.config.fail_on_data_loss and setup.assignment.ends is None

    def _check(self, check: Callable[[], None]) -> None:
        """Repeat a check that finds a loss: a broker that has just started may not know all yet."""
        for attempt in range(1, CHECK_ATTEMPTS + 1):
            try:
                check()
            except DataLost as error:
                if error.code == "source_data_lost" or attempt == CHECK_ATTEMPTS:
                    raise error.at(connector=self.setup.config.name) from None
                self.setup.stop.pause(CHECK_INTERVAL_MS)
            else:
                return


def positions_text(starts: Offsets) -> dict[str, int]:
    """Return the first start offsets by partition, for the log."""
    displayed = sorted(starts.items())[:POSITIONS_LOGGED_MAX]
    return {f"{tp.topic}-{tp.partition}": offset for tp, offset in displayed}
