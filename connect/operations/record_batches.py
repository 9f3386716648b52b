"""Committed records of ranges of offsets, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import LogReader
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 8 * 2**20
POLL_MS: Final = 250
QUIET_POLLS_MAX: Final = 120
"""30 s without progress: the broker is unavailable."""

Offsets = Mapping[TopicPartition, int]


def record_batches(
    reader: LogReader, starts: Offsets, ends: Offsets
) -> Iterator[tuple[list[KafkaRecord], dict[TopicPartition, int]]]:
    """Yield the records of ranges in batches, with the positions after each batch.

    The last batch may have no record; its positions are the ends.

    Args:
        reader: its assignment is replaced.
        starts: first offsets.
        ends: end offsets of the same partitions, at most their last stable offsets.

    Raises:
        RetriableError: the broker is unavailable.
    """
    left = {tp: at for tp, at in starts.items() if at < ends[tp]}
    reader.assign(left)
    records: list[KafkaRecord] = []
    size = 0
    quiet = 0
    before = dict(left)
    while left:
        polled = reader.poll(POLL_MS, BATCH_RECORDS)
        positions = reader.positions()
        quiet = 0 if polled or positions != before else quiet + 1
        before = positions
        reached = {tp: min(at, ends[tp]) for tp, at in positions.items()}
        for record in polled:
            if record.offset < ends[TopicPartition(record.topic, record.partition)]:
                records.append(record)
                size += len(record.key or b"") + len(record.value or b"")
        is_done = all(reached[tp] >= ends[tp] for tp in left)
        if is_done or len(records) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield records, reached
            records, size = [], 0
        if is_done:
            return
        if quiet >= QUIET_POLLS_MAX:
            topics = ", ".join(sorted({tp.topic for tp in left}))
            raise RetriableError(
                f"no record of topic {topics} arrived for "
                f"{QUIET_POLLS_MAX * POLL_MS // 1000} s; try again later",
                code="broker_unavailable",
            )
