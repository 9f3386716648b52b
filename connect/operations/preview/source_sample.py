"""A few records of a connector's source topics, read without any group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from connect.clock import Clock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord

POLL_MS: Final = 500
TIMEOUT_MS: Final = 30_000
BYTES_MAX: Final = 32 * 1024 * 1024

Start = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class SourceSample:
    """Records in the order in which they were read.

    Attributes:
        records: at most as many as were asked for.
        is_complete: False when time or size ended the read before the count or the logs' ends.
    """

    records: tuple[KafkaRecord, ...]
    is_complete: bool


def read_sample(
    admin: KafkaAdmin,
    reader: LogReader,
    partitions: Sequence[TopicPartition],
    clock: Clock,
    *,
    count: int,
    start: Start,
) -> SourceSample:
    """Read the first or the last committed records of partitions.

    Args:
        admin: of the source cluster.
        reader: assigned to nothing.
        partitions: to read.
        clock: bounds the time.
        count: records at most, spread evenly over the partitions that have some.
        start: ``earliest`` takes the oldest records, ``latest`` the newest.

    Raises:
        RetriableError: the broker is away.
    """
    ends = admin.ends(partitions)
    log_starts = {tp: mark[0] for tp, mark in admin.watermarks(partitions).items()}
    filled = sorted(tp for tp in partitions if ends[tp] > log_starts[tp])
    sample: list[KafkaRecord] = []
    size = 0
    deadline_ms = clock.monotonic_ms() + TIMEOUT_MS
    for index, tp in enumerate(filled):
        share = -(-(count - len(sample)) // (len(filled) - index))
        position = log_starts[tp] if start == "earliest" else max(log_starts[tp], ends[tp] - share)
        reader.assign({tp: position})
        before = len(sample)
        while len(sample) - before < share and reader.positions()[tp] < ends[tp]:
            if clock.monotonic_ms() >= deadline_ms or size >= BYTES_MAX:
                return SourceSample(tuple(sample), is_complete=False)
            polled = reader.poll(POLL_MS, share - (len(sample) - before))
            records = [record for record in polled if record.offset < ends[tp]]
            sample += records
            size += sum(len(r.key or b"") + len(r.value or b"") for r in records)
    reader.assign({})
    return SourceSample(tuple(sample), is_complete=True)
