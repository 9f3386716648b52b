"""The snapshot property of lost source records."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

from control_schemas.events import EventHeaders, LostRange, TableReference
from coordinator.commit.rules.lost_records import PROPERTY, RANGES_MAX, lost_records
from coordinator.kernel.effects import Envelope
from tests.support.tables import announced

TABLE = TableReference("iceberg", ("db",), "t", UUID(int=7))


def _envelope(offset: int, *lost: LostRange) -> Envelope:
    return replace(announced(TABLE, [], offset=offset), headers=EventHeaders(lost=lost))


def test_each_range_is_named_once() -> None:
    """Events of one answer repeat the ranges; ranges that the table already has are left out."""
    first, second = LostRange("orders", 1, 0, 3), LostRange("orders", 0, 10, 25)
    envelopes = [_envelope(4, LostRange("old", 0, 0, 1)), _envelope(5, first, second)]
    envelopes.append(_envelope(6, first, second))
    assert lost_records(envelopes, {0: 5}) == {
        PROPERTY: '{"ranges":[["orders",0,10,25],["orders",1,0,3]],"more":0,"offsets":18}'
    }
    assert lost_records(envelopes, {0: 7}) == {}
    assert lost_records([_envelope(1)], {}) == {}


def test_the_number_of_ranges_is_bounded() -> None:
    """Further ranges are counted."""
    lost = [LostRange("orders", n, 0, 2) for n in range(RANGES_MAX + 3)]
    lost_ranges = json.loads(lost_records([_envelope(0, *lost)], {})[PROPERTY])
    assert (len(lost_ranges["ranges"]), lost_ranges["more"], lost_ranges["offsets"]) == (
        RANGES_MAX,
        3,
        2 * len(lost),
    )


def test_records_of_a_recreated_topic_have_no_end() -> None:
    """They are listed with null, and not counted."""
    lost = [LostRange("orders", 0, 10, None), LostRange("orders", 0, 10, 12)]
    value = json.loads(lost_records([_envelope(0, *lost)], {})[PROPERTY])
    ranges = [["orders", 0, 10, None], ["orders", 0, 10, 12]]
    assert value == {"ranges": ranges, "more": 0, "offsets": 2}
