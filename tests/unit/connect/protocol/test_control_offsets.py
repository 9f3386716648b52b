"""Control offsets as text, instants as text: what is written is read, the rest is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.errors import CommitRefused
from connect.protocol.control_offsets import covers, merged, offsets_text, parse_offsets
from coordinator.commit.iceberg.snapshots import instant_text, instant_us

FLOORS = st.dictionaries(st.integers(0, 10**6), st.integers(0, 2**63 - 1), max_size=20)


@given(FLOORS)
def test_offsets_survive_a_round_trip(floor: dict[int, int]) -> None:
    """A successor reads what the snapshot contains."""
    assert parse_offsets(offsets_text(floor)) == floor


def test_offsets_have_the_text_form_of_java() -> None:
    """One JSON object with partitions as keys, without blanks."""
    assert offsets_text({10: 7, 0: 12}) == '{"0":12,"10":7}'
    assert parse_offsets(None) == parse_offsets("{}") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "7",
        '{"0":null}',
        '{"0":"1"}',
        '{"0":-1}',
        '{"0":1.5}',
        '{"0":true}',
        '{"-1":1}',
        '{"a":1}',
        '{"٣":1}',
        '{"0":9223372036854775808}',
        '{"0":1',
        "[" * 100_000,
        '{"0":1}' + " " * 5_000_000,
    ],
)
def test_invalid_offsets_are_refused(text: str) -> None:
    """A floor that cannot be read is not guessed."""
    with pytest.raises(CommitRefused) as refused:
        parse_offsets(text)
    assert refused.value.code == "floor_unreadable"


@given(st.text() | st.recursive(st.none() | st.integers(), st.lists, max_leaves=5).map(json.dumps))
def test_any_text_is_offsets_or_refused(text: str) -> None:
    """No other result is possible."""
    try:
        found = parse_offsets(text)
    except CommitRefused:
        return
    assert all(isinstance(p, int) and isinstance(o, int) for p, o in found.items())


@given(FLOORS, FLOORS)
def test_a_merged_floor_covers_its_parts(one: dict[int, int], other: dict[int, int]) -> None:
    """Per partition, the higher offset wins."""
    both = merged(one, other)
    assert covers(both, one)
    assert covers(both, other)
    assert covers(one, both) == (both == one)


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_instants_survive_a_round_trip_in_milliseconds(us: int) -> None:
    """Rounded down, so that nothing is claimed too early."""
    text = instant_text(us)
    assert len(text) == 24
    assert instant_us(text) == us // 1000 * 1000


@pytest.mark.parametrize("us", [-(2**63), 2**63 - 1])
def test_instants_out_of_range_are_cut_off(us: int) -> None:
    """Extreme timestamps still give a readable text."""
    assert instant_us(instant_text(us)) is not None


@pytest.mark.parametrize("text", [None, "", "soon", "99999-01-01T00:00:00Z"])
def test_an_invalid_instant_is_none(text: str | None) -> None:
    """An invalid VTTS of another writer does not stop the table."""
    assert instant_us(text) is None


def test_instants_with_other_digits_are_read() -> None:
    """Java writes whole seconds, microseconds or zone offsets."""
    assert instant_us("2026-01-02T03:04:05Z") == 1_767_323_045_000_000
    assert instant_us("2026-01-02T03:04:05.678901+00:00") == 1_767_323_045_678_901
    assert instant_us("2026-01-02T03:04:05") == 1_767_323_045_000_000
