"""The dead letter topic of a connector: dead letters counted, and one of them read.

Rules of this file:
- An operation reads the records that exist when it begins.
- The content of a record is part of an answer only when the caller asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, ExitStatus, IcefloeError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.java_compat.iso_time import instant_text
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.operations.record_batches import Offsets, record_batches
from connect.records.dead_letter import Origin, origin

KINDS_MAX: Final = 10_000
_TOO_MANY: Final = "(others)"


class DeadLetterError(ConfigError):
    """A topic or record does not exist, or a record has no topic to replay it to."""

    default_code = "dead_letter"
    exit_status = ExitStatus.NO


class NoDeadLetterError(DeadLetterError):
    """The connector has no dead letter topic, the topic does not exist, or the record does not."""

    default_code = "no_such_dead_letter"


@dataclass(frozen=True, slots=True)
class DeadLetterCategory:
    """The properties that dead letters are counted by; empty where the headers lack one."""

    stage: str
    exception: str
    table: str
    topic: str

    @classmethod
    def of(cls, record_origin: Origin) -> DeadLetterCategory:
        """Return the kind of one dead letter."""
        return cls(
            record_origin.stage or "",
            record_origin.exception or "",
            record_origin.table or "",
            record_origin.topic or "",
        )


@dataclass(frozen=True, slots=True)
class LocatedDeadLetter:
    """Coordinates and timestamp of one dead letter, and its source record."""

    partition: int
    offset: int
    timestamp_ms: int | None
    source: Origin

    @property
    def order(self) -> tuple[int, int, int]:
        """Key of the order by time."""
        time_ms = -1 if self.timestamp_ms is None else self.timestamp_ms
        return time_ms, self.partition, self.offset

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        source = self.source
        return {
            "partition": self.partition,
            "offset": self.offset,
            "time": _instant(self.timestamp_ms),
            "source": {
                "topic": source.topic,
                "partition": source.partition,
                "offset": source.offset,
            }
            if source.is_known
            else None,
        }


@dataclass(slots=True)
class DeadLetterCategoryCount:
    """Number of dead letters of one kind, and the first and last of them.

    Coordinates are those in the dead letter topic; times are milliseconds since 1970.

    Attributes:
        count: all of them.
        replayed_count: those that a replay has passed: replayed, or skipped by its filters.
        first, last: by time, then by place.
    """

    count: int = 0
    replayed_count: int = 0
    first: LocatedDeadLetter | None = None
    last: LocatedDeadLetter | None = None

    def add(self, record: KafkaRecord, source: Origin, *, is_replayed: bool) -> None:
        """Count one more."""
        place = LocatedDeadLetter(record.partition, record.offset, record.timestamp_ms, source)
        self.count += 1
        self.replayed_count += is_replayed
        if self.first is None or place.order < self.first.order:
            self.first = place
        if self.last is None or place.order >= self.last.order:
            self.last = place


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """The dead letter topic of one connector.

    Args:
        config: the connector; names the topic.
        admin: the cluster.
        reader: assigned to no partition.
        is_own_only: exclude dead letters whose headers name another connector.
    """

    config: ConnectorConfig
    admin: KafkaAdmin
    reader: LogReader
    is_own_only: bool = False

    @property
    def topic(self) -> str:
        """Name of the topic.

        Raises:
            NoDeadLetterError: the connector has none.
        """
        topic = self.config.errors.dead_letter_topic
        if topic is None:
            raise NoDeadLetterError(
                f"connector {self.config.name} has no dead letter topic: set "
                "errors.deadletterqueue.topic.name (rows of a dead letter table are read as those "
                "of any table)",
                code="no_dead_letter_topic",
            )
        return topic

    def marks(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return first offset and end offset of each partition now.

        Raises:
            NoDeadLetterError: the topic does not exist.
        """
        partitions = self.admin.partitions(self.topic)
        if not partitions:
            raise NoDeadLetterError(
                f"topic {self.topic} does not exist: no dead letter was written yet, or this is "
                "another cluster",
                code="dead_letter_topic_missing",
            )
        return self.admin.watermarks(partitions)

    def kinds(self, offsets_max: int | None = None) -> dict[str, Any]:
        """Return counts by stage, exception, table and source topic, with first and last of each.

        Args:
            offsets_max: newest offsets to read; None reads the whole topic.
        """
        marks = self.marks()
        ends = {tp: end for tp, (_, end) in marks.items()}
        oldest = {tp: start for tp, (start, _) in marks.items()}
        starts = {tp: ends[tp] - kept for tp, kept in shares(oldest, ends, offsets_max).items()}
        counts = self._count(starts, ends)
        ordered = sorted(counts.items(), key=lambda item: -item[1].count)
        return {
            "topic": self.topic,
            "records": sum(each.count for each in counts.values()),
            "offsets_not_read": sum(starts[tp] - oldest[tp] for tp in starts),
            "kinds": [_kind(kind, each) for kind, each in ordered],
        }

    def _count(
        self, starts: Offsets, ends: Offsets
    ) -> dict[DeadLetterCategory, DeadLetterCategoryCount]:
        """Return counts by kind; kinds above a limit are counted together."""
        counts: dict[DeadLetterCategory, DeadLetterCategoryCount] = {}
        replayed = self._replayed(ends)
        for records, _ in self.batches(starts, ends):
            for record in records:
                source = origin(record)
                if not self._is_covered(source):
                    continue
                kind = DeadLetterCategory.of(source)
                if kind not in counts and len(counts) >= KINDS_MAX:
                    kind = DeadLetterCategory(_TOO_MANY, _TOO_MANY, _TOO_MANY, _TOO_MANY)
                is_replayed = record.offset < replayed.get(record.partition, 0)
                count = counts.setdefault(kind, DeadLetterCategoryCount())
                count.add(record, source, is_replayed=is_replayed)
        return counts

    def _replayed(self, ends: Offsets) -> dict[int, int]:
        """Return the position of the connector's replays in each partition, if it is known."""
        try:
            committed = self.admin.committed(replay_group(self.config.name), list(ends))
        except IcefloeError:  # the principal may not read the group: counts need no more
            return {}
        return {tp.partition: at for tp, at in committed.items() if at is not None}

    def one(
        self,
        partition: int,
        offset: int,
        *,
        with_content: bool = False,
        characters_max: int | None = None,
    ) -> dict[str, Any]:
        """Return one dead letter: error headers, and sizes of key, value and other headers.

        Args:
            partition: of the topic.
            offset: in the partition.
            with_content: add key, value and other headers as text.
            characters_max: longest text; a longer one is cut.

        Raises:
            NoDeadLetterError: no dead letter exists at the place.
        """
        record = self._read(partition, offset)

        def text(value: bytes | None) -> str | None:
            decoded = None if value is None else value.decode("utf-8", "backslashreplace")
            return decoded if decoded is None else decoded[:characters_max]

        def sized(value: bytes | None) -> dict[str, Any]:
            described: dict[str, Any] = {"bytes": None if value is None else len(value)}
            return {**described, "text": text(value)} if with_content else described

        source_headers = origin(record).headers
        left = list(source_headers)
        errors = []
        for header in record.headers:
            if left and header is left[0]:
                del left[0]
            else:
                errors.append(header)
        return {
            **_coordinates(record),
            "errors": [{"name": name, "text": text(value)} for name, value in errors],
            "headers": [{"name": name, **sized(value)} for name, value in source_headers],
            "key": sized(record.key),
            "value": sized(record.value),
        }

    def _read(self, partition: int, offset: int) -> KafkaRecord:
        tp = TopicPartition(self.topic, partition)
        start, end = self.marks().get(tp, (0, 0))
        if start <= offset < end:
            for records, _ in self.batches({tp: offset}, {tp: offset + 1}):
                for record in records:
                    if record.offset == offset and self._is_covered(origin(record)):
                        return record
        raise NoDeadLetterError(
            f"topic {self.topic} has no dead letter of connector {self.config.name} at partition "
            f"{partition}, offset {offset}: the partition holds [{start}, {end})"
        )

    def _is_covered(self, source: Origin) -> bool:
        return not self.is_own_only or source.connector in {None, self.config.name}

    def batches(
        self, starts: Offsets, ends: Offsets
    ) -> Iterator[tuple[list[KafkaRecord], dict[TopicPartition, int]]]:
        """Yield the records of a range in batches, with the positions after each batch.

        The last batch may have no record; its positions are the ends.

        Raises:
            RetriableError: the broker is unavailable.
        """
        yield from record_batches(self.reader, starts, ends)


def shares(starts: Offsets, ends: Offsets, offsets_max: int | None) -> dict[TopicPartition, int]:
    """Return how many offsets of each partition fit into a limit; each partition gets a share.

    Args:
        starts: first offsets.
        ends: end offsets.
        offsets_max: limit over all partitions; None is no limit.
    """
    sizes = {tp: max(0, ends[tp] - start) for tp, start in starts.items()}
    if offsets_max is None:
        return sizes
    by_partition: dict[TopicPartition, int] = {}
    left = offsets_max
    for number, tp in enumerate(sorted(sizes, key=lambda tp: (sizes[tp], tp))):
        by_partition[tp] = min(sizes[tp], left // (len(sizes) - number))
        left -= by_partition[tp]
    return by_partition


def replay_group(connector: str) -> str:
    """Return the group of the offsets up to which a connector's dead letters were replayed."""
    return f"icefloe-replay-{connector}"


def _kind(kind: DeadLetterCategory, counted: DeadLetterCategoryCount) -> dict[str, Any]:
    return {
        "stage": kind.stage or None,
        "exception": kind.exception or None,
        "table": kind.table or None,
        "source_topic": kind.topic or None,
        "records": counted.count,
        "replayed": counted.replayed_count,
        "first": counted.first and counted.first.to_json(),
        "last": counted.last and counted.last.to_json(),
    }


def _coordinates(record: KafkaRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "time": _instant(record.timestamp_ms),
    }


def _instant(timestamp_ms: int | None) -> str | None:
    return None if timestamp_ms is None else instant_text(timestamp_ms * 1_000_000)
