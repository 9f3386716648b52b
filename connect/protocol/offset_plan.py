"""Where source offsets would be moved: resolved for each partition, before anything is changed.

Rules of this file:
- Nothing is changed. A plan has offsets, so a later change does exactly what was shown.
- An offset outside of the log is moved to its start or end, as Kafka's own tool does.
- Everything below a committed source offset is announced. To move an offset back means that its
  records are read, and their rows written, a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from connect.config.start_position import parse_duration, parse_timestamp
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition

TargetKind: TypeAlias = Literal["timestamp", "duration", "offset", "shift", "earliest", "latest"]
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetTarget:
    """Where to move source offsets, as an operator states it.

    Attributes:
        kind: how ``number`` is meant.
        number: milliseconds since 1970, milliseconds of a duration, an offset, or a difference of
            offsets; 0 for ``earliest`` and ``latest``.
        topic: only this topic; None for all.
        partition: only this partition of ``topic``; None for all.
    """

    kind: TargetKind
    number: int = 0
    topic: str | None = None
    partition: int | None = None

    @classmethod
    def of(
        cls, kind: TargetKind, value: str | None, topic: str | None, partition: int | None
    ) -> OffsetTarget:
        """Parse a target.

        Raises:
            ConfigError: ``offset_target``: the value does not belong to the kind, or a partition is
                given without its topic.
        """
        if partition is not None and topic is None:
            raise _refused("a partition needs its topic")
        try:
            number = _number(kind, value)
        except ValueError as error:
            raise _refused(f"{value!r} is not a {kind}: {error}") from None
        return cls(kind, number, topic, partition)

    def covers(self, tp: TopicPartition) -> bool:
        """Return whether the offset of this partition is to be moved."""
        return self.topic in {None, tp.topic} and self.partition in {None, tp.partition}


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """The move of one partition.

    Attributes:
        tp: the partition.
        from_offset: committed source offset; None when there is none.
        to_offset: the next offset that would be read.
        log: first offset of the log, and last stable offset.
        bounded_at: ``start`` or ``end`` when the target was outside of the log.
    """

    tp: TopicPartition
    from_offset: int | None
    to_offset: int
    log: tuple[int, int]
    bounded_at: Literal["start", "end"] | None = None

    @property
    def reread(self) -> int:
        """Offsets that would be read again: an upper bound of the number of records."""
        return 0 if self.from_offset is None else max(0, self.from_offset - self.to_offset)

    @property
    def skipped(self) -> int:
        """Offsets in the log that would not be read: an upper bound of the number of records."""
        from_offset = (
            self.log[0] if self.from_offset is None else max(self.from_offset, self.log[0])
        )
        return max(0, self.to_offset - from_offset)


def plan_moves(
    target: OffsetTarget,
    partitions: Collection[TopicPartition],
    committed: Mapping[TopicPartition, int],
    admin: KafkaAdmin,
    *,
    now_ms: int,
) -> list[PartitionMove]:
    """Return where the offsets of a connector would be moved, by topic and partition.

    Args:
        target: where.
        partitions: source partitions of the connector.
        committed: its committed source offsets.
        admin: the cluster.
        now_ms: wall clock.

    Raises:
        ConfigError: ``offset_target``: no partition is meant, or a partition without a committed
            offset is to be shifted.
        RetriableError: the broker does not answer.
    """
    chosen = sorted(tp for tp in partitions if target.covers(tp))
    if not chosen:
        subject = "partition" if target.topic is None else f"partition of topic {target.topic}"
        raise _refused(f"the connector reads no such {subject}")
    if target.kind == "shift":
        absent = [tp for tp in chosen if tp not in committed]
        if absent:
            raise _refused(
                f"{absent[0].topic}-{absent[0].partition} has no committed offset that could be "
                "shifted; name the partitions that have one"
            )
    logs = admin.watermarks(chosen)
    targets = _wanted(target, logs, committed, admin, now_ms)
    return [_move(tp, committed.get(tp), targets[tp], logs[tp]) for tp in chosen]


def _wanted(
    target: OffsetTarget,
    logs: Mapping[TopicPartition, tuple[int, int]],
    committed: Mapping[TopicPartition, int],
    admin: KafkaAdmin,
    now_ms: int,
) -> Mapping[TopicPartition, int]:
    match target.kind:
        case "timestamp":
            return admin.offsets_at(list(logs), target.number)
        case "duration":
            return admin.offsets_at(list(logs), max(0, now_ms - target.number))
        case "offset":
            return dict.fromkeys(logs, target.number)
        case "shift":
            return {tp: committed[tp] + target.number for tp in logs}
        case "earliest":
            return {tp: log_start for tp, (log_start, _) in logs.items()}
        case "latest":
            return {tp: end for tp, (_, end) in logs.items()}


def _move(
    tp: TopicPartition, before: int | None, target: int, log: tuple[int, int]
) -> PartitionMove:
    log_start, end = log
    if target < log_start:
        return PartitionMove(tp, before, log_start, log, "start")
    if target > end:
        return PartitionMove(tp, before, end, log, "end")
    return PartitionMove(tp, before, target, log)


def _number(kind: TargetKind, value: str | None) -> int:
    if kind in {"earliest", "latest"}:
        if value is not None:
            raise ValueError("it takes no value")
        return 0
    if value is None:
        raise ValueError("the value is missing")
    if kind == "timestamp":
        return parse_timestamp(value)
    if kind == "duration":
        return parse_duration(value)
    digits = value.removeprefix("-") if kind == "shift" else value
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise ValueError("not a number" if kind == "shift" else "not a number from 0")
    if int(digits) > _LONG_MAX:
        raise ValueError("too large")
    return int(value)


def _refused(why: str) -> ConfigError:
    return ConfigError(why, code="offset_target")
