"""Record headers of an event."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_schemas.errors import MalformedEvent
from control_schemas.events import EventHeaders, LostRange, RowCounts, SourceRange
from control_schemas.headers import decode_headers, encode_headers
from control_schemas.limits import HEADER_BYTES_MAX

NUMBER = st.integers(0, 2**63 - 1)
RANGES = st.builds(
    lambda topic, partition, ends, counts, timestamp: SourceRange(
        topic,
        partition,
        min(ends),
        max(ends),
        counts[0],
        counts[1],
        counts[2],
        counts[3],
        timestamp,
    ),
    st.text(st.characters(exclude_categories=["Cs"])),
    NUMBER,
    st.tuples(NUMBER, NUMBER),
    st.tuples(NUMBER, NUMBER, NUMBER, NUMBER),
    st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
)
HEADERS = st.builds(
    EventHeaders,
    st.none() | NUMBER,
    st.none() | NUMBER,
    st.none() | st.lists(RANGES, max_size=4).map(tuple),
    st.none() | st.lists(st.tuples(st.text("ab-ß"), NUMBER), max_size=3).map(tuple),
    st.none() | NUMBER,
    st.none() | st.builds(lambda a, b, c: RowCounts(a + b + c, b, c), *[st.integers(0, 2**60)] * 3),
    st.booleans(),
    st.lists(st.tuples(st.uuids(), st.lists(NUMBER, max_size=3).map(tuple)), max_size=3)
    .map(dict)
    .map(lambda waiting: tuple(waiting.items())),
    st.lists(
        st.builds(
            lambda topic, partition, start, count: LostRange(
                topic, partition, start, start + count
            ),
            st.text("ab-ß"),
            NUMBER,
            st.integers(0, 2**62),
            st.integers(1, 2**61),
        ),
        max_size=3,
    ).map(tuple),
    st.none() | NUMBER,
    st.none() | NUMBER,
)


@given(HEADERS)
def test_headers_survive_a_round_trip(headers: EventHeaders) -> None:
    """Decoding the encoded headers returns the same values."""
    assert decode_headers(encode_headers(headers)) == headers


def test_headers_are_compact_json() -> None:
    """Numbers are texts, and ranges are a list of lists."""
    ranges = (SourceRange("größe", 0, 10, 30, 18, 3, 1, 14, None),)
    headers = EventHeaders(5, 2, ranges, task=7, time_ms=1767323045678)
    assert decode_headers(encode_headers(headers)) == headers
    assert encode_headers(headers) == (
        ("icefloe.layout", b"5"),
        ("icefloe.task", b"7"),
        ("icefloe.batch", b"2"),
        ("icefloe.time", b"1767323045678"),
        ("icefloe.ranges", '[["größe",0,10,30,18,3,1,14,null]]'.encode()),
    )


def test_row_counts_are_a_separate_header() -> None:
    """Readers that know only ranges of nine parts ignore the new header."""
    ranges = (SourceRange("t", 0, 0, 10, 10, 0, 0, 10, None),)
    headers = EventHeaders(5, None, ranges, rows=RowCounts(10, 3, 2))
    assert encode_headers(headers)[1:] == (
        ("icefloe.ranges", b'[["t",0,0,10,10,0,0,10,null]]'),
        ("icefloe.rows", b"[10,3,2]"),
    )
    assert decode_headers(encode_headers(headers)) == headers
    assert RowCounts(10, 3, 2).kept == 5


def test_lost_records_are_a_separate_header() -> None:
    """Readers that do not know it read the ranges, which include the lost offsets."""
    ranges = (SourceRange("t", 0, 0, 10, 4, 0, 0, 4, None),)
    headers = EventHeaders(5, ranges=ranges, lost=(LostRange("t", 0, 0, 6),))
    assert encode_headers(headers)[1:] == (
        ("icefloe.ranges", b'[["t",0,0,10,4,0,0,4,null]]'),
        ("icefloe.lost", b'[["t",0,0,6]]'),
    )
    assert decode_headers(encode_headers(headers)) == headers
    assert headers.lost[0].offsets == 6


def test_the_loss_of_a_recreated_topic_has_its_own_header() -> None:
    """Older versions refuse a lost range without an end, and ignore headers that they lack."""
    lost = (LostRange("t", 0, 0, 6), LostRange("t", 1, 4, None))
    encoded = encode_headers(EventHeaders(lost=lost))
    assert encoded == (("icefloe.lost", b'[["t",0,0,6]]'), ("icefloe.recreated", b'[["t",1,4]]'))
    assert decode_headers(encoded).lost == lost
    assert lost[1].offsets == 0


def test_missing_and_foreign_headers_have_no_effect() -> None:
    """Events of the Java sink have none."""
    assert encode_headers(EventHeaders()) == ()
    assert decode_headers(None) == EventHeaders()
    assert decode_headers([("trace", None), ("icefloe.other", b"{")]) == EventHeaders()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("icefloe.rows", b"[1,2]", "not 3 numbers"),
        ("icefloe.rows", b"[1,2,-1]", "not 3 numbers"),
        ("icefloe.rows", b"[1,1,1]", "more rows are superseded"),
        ("icefloe.rows", b"{}", "not a list"),
        ("icefloe.reset", b"false", "not true"),
        ("icefloe.reset", b"1", "not true"),
        ("icefloe.layout", None, "null, or more than"),
        ("icefloe.layout", b"1" * (HEADER_BYTES_MAX + 1), "null, or more than"),
        ("icefloe.layout", b"", "Expecting value"),
        ("icefloe.layout", b"\xff", "decode"),
        ("icefloe.layout", b"1" * 5000, "limit"),
        ("icefloe.layout", b"-1", "not a number"),
        ("icefloe.layout", b"true", "not a number"),
        ("icefloe.batch", b"1.5", "not a number"),
        ("icefloe.task", b"-1", "not a number"),
        ("icefloe.batch", b"NaN", "not a number"),
        ("icefloe.batch", str(2**63).encode(), "not a number"),
        ("icefloe.ranges", b"{}", "not a list"),
        ("icefloe.moved", b"1", "not a list"),
        ("icefloe.waiting", b"[]", "not an object"),
        ("icefloe.waiting", b'{"x":[]}', "not an object"),
        ("icefloe.waiting", b'{"00000000-0000-0000-0000-000000000001":1}', "not an object"),
        ("icefloe.waiting", b'{"00000000-0000-0000-0000-000000000001":["a"]}', "not a number"),
        ("icefloe.moved", b'[["t"]]', "not a partition"),
        ("icefloe.moved", b'[["t",-1]]', "not a partition"),
        ("icefloe.moved", b"[[1,1]]", "not a partition"),
        ("icefloe.lost", b"{}", "not a list"),
        ("icefloe.lost", b'[["t",0,1,null]]', "icefloe.lost: an item is not a range"),
        ("icefloe.recreated", b'[["t",0,1,2]]', "icefloe.recreated: an item is not the start"),
        ("icefloe.lost", b"[1]", "icefloe.lost: an item is not a range"),
        ("icefloe.lost", b'[["t",0,1]]', "icefloe.lost: an item is not a range"),
        ("icefloe.lost", b'[["t",0,1,-2]]', "icefloe.lost: an item is not a range"),
        ("icefloe.lost", b'[["t",0,2,2]]', "icefloe.lost: an item is not a range"),
        ("icefloe.ranges", b"[" * 100_000, "nested deeper"),
        ("icefloe.ranges", b"[1]", "not have 9 parts"),
        ("icefloe.ranges", b'[["t",0,1,2]]', "not have 9 parts"),
        ("icefloe.ranges", b"[[0,0,1,2,1,0,0,1,null]]", "not a range"),
        ("icefloe.ranges", b'[["t",0,1,2,-1,0,0,1,null]]', "not a range"),
        ("icefloe.ranges", b'[["t",0,1,2,1,0,0,1,"now"]]', "not a range"),
        ("icefloe.ranges", b'[["t",0,2,1,1,0,0,1,null]]', "ends before it starts"),
    ],
)
def test_headers_with_invalid_content_are_malformed(
    key: str, value: bytes | None, reason: str
) -> None:
    """A header of Icefloe that Icefloe did not write is refused."""
    with pytest.raises(MalformedEvent, match=reason):
        decode_headers([(key, value)])


def test_a_null_header_is_the_same_as_no_header() -> None:
    """The value is JSON null."""
    assert decode_headers([("icefloe.ranges", b"null")]) == EventHeaders()
