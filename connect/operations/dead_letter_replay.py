"""The dead letter topic of a connector: read, counted, and put back on the source topics.

Rules of this file:
- Only what was there at the start is looked at: what is replayed may fail again, and must not be
  met again by the same run.
- A replay sends records and moves the offsets of its group in one transaction: killed anywhere and
  run again, each dead letter is replayed once. Whoever replays last fences those before.
- What cannot be put back is found before the first record is sent. Headers are believed only so
  far: records go to no topic but those that the connector reads, or the one the operator names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.config.reserved_topics import WHY
from connect.errors import ConfigError, DataLost, ExitStatus, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import (
    LogReader,
    ProducerMessage,
    Stage,
    TransactionalProducer,
)
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.protocol.source_partitions import source_partitions
from connect.records.dead_letter import Origin, origin

GROUPS_MAX: Final = 10_000
TRANSACTION_RECORDS: Final = 500
TRANSACTION_BYTES: Final = 8 * 2**20
POLL_MS: Final = 250
QUIET_POLLS_MAX: Final = 120  # 30 s without any progress: the broker is away
_TOO_MANY: Final = "(others)"

Offsets = Mapping[TopicPartition, int]
Verdict = Literal["replay", "other connector", "filtered", "unknown origin"]


class DeadLetterError(ConfigError):
    """There is no such topic or record, or a record has no topic to be replayed to."""

    default_code = "dead_letter"
    exit_status = ExitStatus.NO


@dataclass(frozen=True, slots=True)
class LetterKind:
    """What dead letters are counted by; empty where a record's headers do not say."""

    stage: str
    exception: str
    table: str
    topic: str

    @classmethod
    def of(cls, found: Origin) -> LetterKind:
        """The kind of one dead letter."""
        return cls(found.stage or "", found.exception or "", found.table or "", found.topic or "")


@dataclass(slots=True)
class Sighting:
    """How many dead letters of a kind there are, and the first and last of them.

    Coordinates are those in the dead letter topic; times are milliseconds since 1970.
    """

    count: int = 0
    first: tuple[int, int, int | None] | None = None
    last: tuple[int, int, int | None] | None = None

    def add(self, record: KafkaRecord) -> None:
        """Count one more."""
        place = record.partition, record.offset, record.timestamp_ms
        self.count += 1
        if self.first is None or _order(place) < _order(self.first):
            self.first = place
        if self.last is None or _order(place) >= _order(self.last):
            self.last = place


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters a replay takes, and where they go.

    Attributes:
        connector: others' dead letters in the same topic are left alone.
        codes: only these, unless empty.
        tables: only these, unless empty.
        topic: for dead letters without context headers; their key chooses the partition.
    """

    connector: str
    codes: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    topic: str | None = None

    def judge(self, found: Origin) -> Verdict:
        """What happens to one dead letter."""
        if found.connector not in {None, self.connector}:
            return "other connector"
        if self.codes and found.code not in self.codes:
            return "filtered"
        if self.tables and found.table not in self.tables:
            return "filtered"
        if not found.is_known and self.topic is None:
            return "unknown origin"
        return "replay"


@dataclass(slots=True)
class Outcome:
    """What a replay does or did.

    Attributes:
        targets: records per source topic.
        skipped: records per reason.
    """

    targets: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def replayed(self) -> int:
        """Records put back."""
        return self.targets.total()


@dataclass(frozen=True, slots=True)
class DeadLetterTopic:
    """The dead letter topic of one connector.

    Args:
        config: the connector; names the topic.
        admin: the cluster.
        reader: assigned to nothing.
        excluded: reserved topics: no dead letter is replayed to them.
    """

    config: ConnectorConfig
    admin: KafkaAdmin
    reader: LogReader
    excluded: frozenset[str] = frozenset()

    @property
    def topic(self) -> str:
        """Name of the topic.

        Raises:
            DeadLetterError: the connector has none.
        """
        topic = self.config.errors.dead_letter_topic
        if topic is None:
            raise DeadLetterError(
                f"connector {self.config.name} has no dead letter topic: set "
                "errors.deadletterqueue.topic.name (rows of a dead letter table are read as those "
                "of any table)",
                code="no_dead_letter_topic",
            )
        return topic

    @property
    def group(self) -> str:
        """Group of the offsets up to which dead letters were replayed."""
        return f"icefloe-replay-{self.config.name}"

    def marks(self) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end of each partition now.

        Raises:
            DeadLetterError: the topic does not exist.
        """
        count = self.admin.topics().get(self.topic, 0)
        if not count:
            raise DeadLetterError(
                f"there is no topic {self.topic}: no dead letter was ever written, or this is "
                "another cluster",
                code="dead_letter_topic_missing",
            )
        return self.admin.watermarks([TopicPartition(self.topic, p) for p in range(count)])

    def count(self) -> dict[LetterKind, Sighting]:
        """All dead letters by kind; kinds beyond a bound together as one."""
        marks = self.marks()
        found: dict[LetterKind, Sighting] = {}
        starts, ends = _starts(marks), _ends(marks)
        for records, _ in self._batches(starts, ends):
            for record in records:
                kind = LetterKind.of(origin(record))
                if kind not in found and len(found) >= GROUPS_MAX:
                    kind = LetterKind(_TOO_MANY, _TOO_MANY, _TOO_MANY, _TOO_MANY)
                found.setdefault(kind, Sighting()).add(record)
        return found

    def one(self, partition: int, offset: int) -> KafkaRecord:
        """The dead letter at a place.

        Raises:
            DeadLetterError: there is none.
        """
        tp = TopicPartition(self.topic, partition)
        start, end = self.marks().get(tp, (0, 0))
        if start <= offset < end:
            for records, _ in self._batches({tp: offset}, {tp: offset + 1}):
                for record in records:
                    if record.offset == offset:
                        return record
        raise DeadLetterError(
            f"topic {self.topic} has no dead letter at partition {partition}, offset {offset}: the "
            f"partition holds [{start}, {end})",
            code="no_such_dead_letter",
        )

    def positions(
        self, marks: Mapping[TopicPartition, tuple[int, int]]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where a replay goes on, and where an earlier one ended though that is gone by now.

        Raises:
            DataLost: the topic was created anew.
        """
        out: dict[TopicPartition, int] = {}
        gone: dict[TopicPartition, int] = {}
        for tp, at in self.admin.committed(self.group, list(marks)).items():
            start, end = marks[tp]
            if at is not None and at > end:
                raise DataLost(
                    f"replays had come to offset {at}, the partition ends at {end}: the topic was "
                    f"created anew; delete the consumer group {self.group} to begin at its start",
                    topic=tp.topic,
                    partition=tp.partition,
                )
            if at is not None and at < start:
                gone[tp] = at
            out[tp] = start if at is None else max(at, start)
        return out, gone

    def plan(self, choice: Choice, starts: Offsets, ends: Offsets) -> Outcome:
        """What a replay of this range would do.

        Raises:
            DeadLetterError: a record has nowhere to go.
        """
        topics = self.admin.topics()
        sources = set(source_partitions(self.config, topics, excluded=self.excluded))
        outcome = Outcome()
        for records, _ in self._batches(starts, ends):
            for record in records:
                found = origin(record)
                verdict = choice.judge(found)
                if verdict == "unknown origin":
                    raise _unplaced(record, "does not say where it came from: name it with --topic")
                if verdict != "replay":
                    outcome.skipped[verdict] += 1
                    continue
                message = _message(record, found, choice)
                if message.topic in self.excluded | {self.config.control_topic}:
                    raise _unplaced(record, f"would go to {message.topic}, {WHY}")
                if message.partition is None:
                    is_there = message.topic in topics
                else:  # headers may be forged by whoever wrote the record
                    is_there = TopicPartition(message.topic, message.partition) in sources
                if not is_there:
                    where = "" if message.partition is None else f", partition {message.partition},"
                    raise _unplaced(
                        record,
                        f"goes to topic {message.topic}{where} which is not there, or which the "
                        "connector does not read: create it, name it in the file's topics, or "
                        "leave the record out by --table or --code",
                    )
                outcome.targets[message.topic] += 1
        return outcome

    def replay(
        self, producer: TransactionalProducer, choice: Choice, starts: Offsets, ends: Offsets
    ) -> Outcome:
        """Put the dead letters of a range back; the producer is initialised.

        Raises:
            Fenced: another replay has begun; it goes on where this one ended.
            RetriableError: broker trouble; run it again, nothing comes twice.
        """
        outcome = Outcome()
        for records, reached in self._batches(starts, ends):
            messages = []
            for record in records:
                found = origin(record)
                verdict = choice.judge(found)
                if verdict == "replay":
                    message = _message(record, found, choice)
                    messages.append(message)
                    outcome.targets[message.topic] += 1
                else:
                    outcome.skipped[verdict] += 1
            producer.transact(messages, group_id=self.group, offsets=reached, on_stage=_hit)
            failpoints.hit("R2")
        return outcome

    def _batches(
        self, starts: Offsets, ends: Offsets
    ) -> Iterator[tuple[list[KafkaRecord], dict[TopicPartition, int]]]:
        """Records of a range, a bounded number at a time, and where each partition then stands.

        The last one may have no record, but stands at the ends.
        """
        left = {tp: at for tp, at in starts.items() if at < ends[tp]}
        self.reader.assign(left)
        records: list[KafkaRecord] = []
        size = quiet = 0
        before = dict(left)
        while left:
            found = self.reader.poll(POLL_MS, TRANSACTION_RECORDS)
            positions = self.reader.positions()
            quiet = 0 if found or positions != before else quiet + 1
            before = positions
            reached = {tp: min(at, ends[tp]) for tp, at in positions.items()}
            for record in found:
                if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                    records.append(record)
                    size += len(record.key or b"") + len(record.value or b"")
            is_done = all(reached[tp] >= ends[tp] for tp in left)
            if is_done or len(records) >= TRANSACTION_RECORDS or size >= TRANSACTION_BYTES:
                yield records, reached
                records, size = [], 0
            if is_done:
                return
            if quiet >= QUIET_POLLS_MAX:
                raise RetriableError(
                    f"topic {self.topic} gave nothing for {QUIET_POLLS_MAX * POLL_MS // 1000} s; "
                    "run it again when the broker is there",
                    code="broker_unavailable",
                )


def _message(record: KafkaRecord, found: Origin, choice: Choice) -> ProducerMessage:
    topic = found.topic if found.is_known else choice.topic
    assert topic is not None, "the choice lets nothing pass that has nowhere to go"
    return ProducerMessage(
        topic,
        record.key,
        record.value,
        found.headers,
        record.timestamp_ms,
        found.partition if found.is_known else None,
    )


def _unplaced(record: KafkaRecord, why: str) -> DeadLetterError:
    return DeadLetterError(
        f"the dead letter at partition {record.partition}, offset {record.offset} {why}; nothing "
        "was replayed",
        code="dead_letter_unplaced",
        topic=record.topic,
    )


def _order(place: tuple[int, int, int | None]) -> tuple[int, int, int]:
    partition, offset, timestamp_ms = place
    return (-1 if timestamp_ms is None else timestamp_ms, partition, offset)


def _starts(marks: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    return {tp: start for tp, (start, _) in marks.items()}


def _ends(marks: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    return {tp: end for tp, (_, end) in marks.items()}


def _hit(stage: Stage) -> None:
    if stage == "produced":
        failpoints.hit("R1")
