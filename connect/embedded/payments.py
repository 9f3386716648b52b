"""Generates numbered, deterministic payments for demos and benchmarks.

Rules of this file:
- The content of a record, except its time, depends only on its partition and sequence number. So
  a check can compute which records a table must contain.
- The sequence numbers of a partition start at 0 without gaps. Topic, partition and sequence number
  identify a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from connect.clock import SystemClock
from connect.gateways.kafka.bulk_producer import BulkProducer
from connect.java_compat.iso_time import instant_text

KINDS = ("payment", "refund", "chargeback")
CURRENCIES = ("EUR", "USD", "GBP", "CHF", "SEK", "NOK", "PLN", "JPY")
COUNTRIES = ("DE", "FR", "US", "GB", "CH", "SE", "NO", "PL", "JP", "ES", "IT", "NL")
CHUNK_RECORDS = 2_000
# A prime, so that consecutive records of a partition use all variants.
VARIANTS = 8_191
_STEP = 1_237
_MASK = (1 << 64) - 1


def kind_codes(partition: int, sequences: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the index into ``KINDS`` of each record."""
    table = np.array([_kind_code(_mix(variant)) for variant in range(VARIANTS)], dtype=np.int64)
    codes: npt.NDArray[np.int64] = table[(sequences * _STEP + partition) % VARIANTS]
    return codes


def variant_tails() -> list[bytes]:
    """Return the end of a record, after its number and time, for each variant."""
    return [_tail(_mix(variant)) for variant in range(VARIANTS)]


def chunk(partition: int, start: int, end: int, at: str, tails: Sequence[bytes]) -> list[bytes]:
    """Return the records ``start`` to ``end`` (exclusive) of a partition, about 190 bytes each.

    Args:
        partition: of the topic.
        start: first sequence number.
        end: sequence number after the last record.
        at: value of their time field, ISO 8601.
        tails: ``variant_tails()``.
    """
    head = b'{"partition":%d,"sequence":' % partition
    middle = b',"at":"%b"' % at.encode()
    return [
        b"%b%d%b%b" % (head, sequence, middle, tails[(sequence * _STEP + partition) % VARIANTS])
        for sequence in range(start, end)
    ]


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one partition: ``start`` to ``end`` (exclusive)."""

    partition: int
    start: int
    end: int


def ranges(records: int, starts: Sequence[int]) -> list[Range]:
    """Distribute records evenly over partitions that contain ``starts[partition]`` records."""
    share, rest = divmod(records, len(starts))
    return [
        Range(partition, start, start + share + (partition < rest))
        for partition, start in enumerate(starts)
    ]


def produce(
    properties: Mapping[str, str],
    topic: str,
    ranges: Sequence[Range],
    *,
    clock: SystemClock | None = None,
) -> None:
    """Produce records in chunks, alternating between partitions, and wait for acknowledgement.

    Args:
        properties: Java-named Kafka client properties.
        topic: an existing topic.
        ranges: at most one range per partition.
        clock: for the time of the records.

    Raises:
        RetriableError: the broker did not accept all records.
    """
    clock = clock or SystemClock()
    producer = BulkProducer(properties)
    tails = variant_tails()
    steps = max((r.end - r.start + CHUNK_RECORDS - 1) // CHUNK_RECORDS for r in ranges)
    for step in range(steps):
        at = instant_text(clock.now_ms() * 1_000_000)
        for r in ranges:
            start = min(r.start + step * CHUNK_RECORDS, r.end)
            end = min(start + CHUNK_RECORDS, r.end)
            values = chunk(r.partition, start, end, at, tails)
            producer.send(topic, r.partition, values)
    producer.finish(topic)


def _mix(number: int) -> int:
    """Hash a number with splitmix64; the result is the same on every platform."""
    x = (number * 0x2545F4914F6CDD1D + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _kind_code(bits: int) -> int:
    """Select a kind: 90 % payments, 8 % refunds, 2 % chargebacks."""
    percent = bits % 100
    return 0 if percent < 90 else 1 if percent < 98 else 2


def _tail(bits: int) -> bytes:
    amount = (bits >> 20) % 1_000_000
    return (
        f',"kind":"{KINDS[_kind_code(bits)]}","account":"acct-{(bits >> 7) % 100_000:07d}"'
        f',"amount":{amount // 100}.{amount % 100:02d},"currency":"{CURRENCIES[(bits >> 41) & 7]}"'
        f',"merchant":"merchant-{(bits >> 44) % 5000:05d}"'
        f',"country":"{COUNTRIES[(bits >> 57) % 12]}"}}'
    ).encode()
