"""The payments that demos and benches use can be checked from their numbers alone."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from connect.embedded.payments import KINDS, VARIANTS, chunk, kind_codes, ranges, variant_tails

AT = "2026-01-02T03:04:05.678Z"
TAILS = variant_tails()


@given(partition=st.integers(0, 50), start=st.integers(0, 10**9))
def test_kind_follows_from_partition_and_sequence(partition: int, start: int) -> None:
    """The kind of a record can be computed from its identity."""
    records = [json.loads(value) for value in chunk(partition, start, start + 20, AT, TAILS)]
    codes = kind_codes(partition, np.arange(start, start + 20, dtype=np.int64))
    assert [record["kind"] for record in records] == [KINDS[code] for code in codes]
    assert [record["sequence"] for record in records] == list(range(start, start + 20))
    assert {record["partition"] for record in records} == {partition}
    assert {record["at"] for record in records} == {AT}


def test_kinds_have_their_share() -> None:
    """About 90, 8 and 2 percent."""
    shares = np.bincount(kind_codes(0, np.arange(VARIANTS, dtype=np.int64))) / VARIANTS
    assert np.allclose(shares, [0.90, 0.08, 0.02], atol=0.01)


@given(records=st.integers(0, 10_000), starts=st.lists(st.integers(0, 99), min_size=1, max_size=9))
def test_ranges_contain_every_record_once(records: int, starts: list[int]) -> None:
    """They start at the ends of the partitions and differ by at most one record."""
    parts = ranges(records, starts)
    sizes = [part.end - part.start for part in parts]
    assert sum(sizes) == records
    assert max(sizes) - min(sizes) <= 1
    assert [part.start for part in parts] == starts
    assert [part.partition for part in parts] == list(range(len(starts)))
