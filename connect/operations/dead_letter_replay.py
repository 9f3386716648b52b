"""Dead letters of a connector, produced to the source topics that they came from.

Rules of this file:
- A replay covers the dead letters that exist when it begins. A record that fails again becomes a
  new dead letter, which the same replay does not read.
- A transaction produces records and stores the offsets of the replay's group. A replay that was
  killed and repeated produces each dead letter once. A new replay fences the earlier ones.
- All records of a range are checked before the first one is produced. Any producer can write the
  headers, so records go only to topics that the connector reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from connect import failpoints
from connect.config.reserved_topics import WHY
from connect.errors import DataLost
from connect.gateways.kafka.kafka_clients import ProducerMessage, Stage, TransactionalProducer
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.operations.dead_letter_topic import (
    DeadLetterError,
    DeadLetterTopic,
    replay_group,
    shares,
)
from connect.operations.record_batches import Offsets
from connect.protocol.source_partitions import source_partitions
from connect.records.dead_letter import Origin, origin

Verdict = Literal["replay", "other connector", "filtered", "unknown origin"]


@dataclass(frozen=True, slots=True)
class ReplayChoice:
    """The dead letters that a replay takes, and the topic of those without headers.

    Attributes:
        codes: only these error codes, unless empty.
        tables: only dead letters for these tables, unless empty.
        topic: for dead letters without context headers; their key chooses the partition.
        ends: partition -> end offset, as the plan of this replay had it; None: the current ends.
        offsets_max: oldest offsets that are covered; None: all.
    """

    codes: frozenset[str] = frozenset()
    tables: frozenset[str] = frozenset()
    topic: str | None = None
    ends: Mapping[int, int] | None = None
    offsets_max: int | None = None


@dataclass(slots=True)
class ReplayCounts:
    """Records per target topic, and skipped records per reason."""

    targets: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)


class DeadLetterReplay:
    """A replay of one connector's dead letters.

    Args:
        dead_letters: the dead letter topic.
        choice: which dead letters.
        excluded: reserved topics: no record is produced to them.
    """

    def __init__(
        self, dead_letters: DeadLetterTopic, choice: ReplayChoice, *, excluded: frozenset[str]
    ) -> None:
        self._dead_letters = dead_letters
        self._choice = choice
        self._excluded = excluded
        self.group = replay_group(dead_letters.config.name)

    def run(self, producer: TransactionalProducer, *, is_applied: bool) -> dict[str, Any]:
        """Plan the replay, or carry it out.

        Args:
            producer: ``group`` is its transactional id; not initialised yet.
            is_applied: False only plans.

        Raises:
            DeadLetterError: a record has no topic to replay it to; no record was produced.
            DataLost: the topic was created again after an earlier replay.
            Fenced: another replay has begun; it continues where this one ended.
            RetriableError: the broker is unavailable; repeat the replay.
        """
        marks = self._dead_letters.marks()
        if is_applied:
            producer.init()  # fences a replay that still runs, or that was killed
        starts, gone = self._positions(marks)
        whole = self._ends(marks, starts)
        covered = shares(starts, whole, self._choice.offsets_max)
        ends = {tp: starts[tp] + covered[tp] for tp in starts}
        counts = self._plan(starts, ends)
        if is_applied:
            counts = self._replay(producer, starts, ends)
        return {
            "topic": self._dead_letters.topic,
            "applied": is_applied,
            "ranges": [_range(tp, at, ends[tp]) for tp, at in sorted(starts.items())],
            "gone": [_range(tp, at, starts[tp]) for tp, at in sorted(gone.items())],
            "ends": [{"partition": tp.partition, "offset": at} for tp, at in sorted(whole.items())],
            "offsets_left": sum(whole[tp] - ends[tp] for tp in ends),
            "targets": dict(sorted(counts.targets.items())),
            "skipped": dict(sorted(counts.skipped.items())),
        }

    def _ends(
        self, marks: Mapping[TopicPartition, tuple[int, int]], starts: Offsets
    ) -> dict[TopicPartition, int]:
        planned = self._choice.ends
        if planned is None:
            return {tp: end for tp, (_, end) in marks.items()}
        return {
            tp: max(starts[tp], min(end, planned.get(tp.partition, 0)))
            for tp, (_, end) in marks.items()
        }

    def _positions(
        self, marks: Mapping[TopicPartition, tuple[int, int]]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return where the replay begins, and positions of an earlier one that retention passed."""
        out: dict[TopicPartition, int] = {}
        gone: dict[TopicPartition, int] = {}
        for tp, at in self._dead_letters.admin.committed(self.group, list(marks)).items():
            start, end = marks[tp]
            if at is not None and at > end:
                raise DataLost(
                    f"an earlier replay reached offset {at}, the partition ends at {end}: the "
                    f"topic was deleted and created again; delete the consumer group {self.group} "
                    "to begin at the start of the topic",
                    topic=tp.topic,
                    partition=tp.partition,
                )
            if at is not None and at < start:
                gone[tp] = at
            out[tp] = start if at is None else max(at, start)
        return out, gone

    def _verdict(self, record_origin: Origin) -> Verdict:
        choice = self._choice
        if record_origin.connector not in {None, self._dead_letters.config.name}:
            return "other connector"
        if choice.codes and record_origin.code not in choice.codes:
            return "filtered"
        if choice.tables and record_origin.table not in choice.tables:
            return "filtered"
        if not record_origin.is_known and choice.topic is None:
            return "unknown origin"
        return "replay"

    def _plan(self, starts: Offsets, ends: Offsets) -> ReplayCounts:
        """Check every record of the range and count what a replay would do."""
        config = self._dead_letters.config
        topics = self._dead_letters.admin.topics()
        sources = set(source_partitions(config, topics, excluded=self._excluded))
        names = {tp.topic for tp in sources}
        counts = ReplayCounts()
        for records, _ in self._dead_letters.batches(starts, ends):
            for record in records:
                record_origin = origin(record)
                verdict = self._verdict(record_origin)
                if verdict == "unknown origin":
                    raise _unplaced(
                        record, "has no header with its source topic: name the topic with --topic"
                    )
                if verdict != "replay":
                    counts.skipped[verdict] += 1
                    continue
                message = self._message(record, record_origin)
                if message.topic in self._excluded | {config.control_topic}:
                    raise _unplaced(record, f"would go to {message.topic}, {WHY}")
                partition = message.partition
                if partition is None:
                    is_read = message.topic in names
                else:
                    is_read = TopicPartition(message.topic, partition) in sources
                if not is_read:
                    where = "" if partition is None else f", partition {partition},"
                    raise _unplaced(
                        record,
                        f"goes to topic {message.topic}{where} which does not exist, or which the "
                        "connector does not read: create it, add it to the connector's topics, or "
                        "leave the record out by --table or --code",
                    )
                counts.targets[message.topic] += 1
        return counts

    def _replay(
        self, producer: TransactionalProducer, starts: Offsets, ends: Offsets
    ) -> ReplayCounts:
        counts = ReplayCounts()
        for records, reached in self._dead_letters.batches(starts, ends):
            messages = []
            for record in records:
                record_origin = origin(record)
                verdict = self._verdict(record_origin)
                if verdict == "replay":
                    message = self._message(record, record_origin)
                    messages.append(message)
                    counts.targets[message.topic] += 1
                else:
                    counts.skipped[verdict] += 1
            producer.transact(messages, group_id=self.group, offsets=reached, on_stage=_hit)
            failpoints.hit("R2")
        return counts

    def _message(self, record: KafkaRecord, record_origin: Origin) -> ProducerMessage:
        topic = record_origin.topic if record_origin.is_known else self._choice.topic
        assert topic is not None, "a record without a target topic was chosen"
        return ProducerMessage(
            topic,
            record.key,
            record.value,
            record_origin.headers,
            record.timestamp_ms,
            record_origin.partition if record_origin.is_known else None,
        )


def _unplaced(record: KafkaRecord, why: str) -> DeadLetterError:
    return DeadLetterError(
        f"the dead letter at partition {record.partition}, offset {record.offset} {why}; nothing "
        "was replayed",
        code="dead_letter_unplaced",
        topic=record.topic,
    )


def _range(tp: TopicPartition, start: int, end: int) -> dict[str, Any]:
    return {"partition": tp.partition, "from_offset": start, "to_offset": end}


def _hit(stage: Stage) -> None:
    if stage == "produced":
        failpoints.hit("R1")
