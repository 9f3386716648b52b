"""Decoding of any bytes ends in an event or in MalformedEvent.

``--hypothesis-seed=N`` repeats a run; ``CODEC_FUZZ_EXAMPLES`` makes it longer.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control_schemas.codec import MalformedEvent, decode, encode
from control_schemas.frame import MAGIC
from control_schemas.headers import decode_headers, encode_headers
from tests.support.event_strategies import as_read

RECORDINGS = Path(__file__).parents[2] / "golden" / "control_events"
FRAMES = sorted(
    (path.read_bytes() for path in RECORDINGS.rglob("*.bin") if path.stat().st_size < 10_000),
    key=len,
)
fuzz = settings(
    max_examples=int(os.environ.get("CODEC_FUZZ_EXAMPLES", "200")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A recorded frame with pieces replaced, removed, repeated or cut, in schema or datum."""
    frame = draw(st.sampled_from(FRAMES))
    datum_at = min(len(frame), 4 + int.from_bytes(frame[2:4]))
    start = draw(st.sampled_from([0, datum_at]))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(min(start, len(frame)), len(frame)))
        length = draw(st.integers(0, 8))
        piece = draw(
            st.one_of(
                st.binary(max_size=8),
                st.just(frame[at : at + length] * 2),
                st.just(b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
                st.sampled_from([b'"null"', b'"int"', b"PartitionData", b"uuid_fixed", b"[", b"}"]),
            )
        )
        frame = frame[:at] + piece + frame[at + length :]
    if draw(st.booleans()) and len(frame) > datum_at > 4:  # make the length fit again
        end = frame.rfind(b"}", 0, datum_at + 40) + 1
        frame = MAGIC + max(0, min(end - 4, 65_535)).to_bytes(2) + frame[4:]
    return frame


def check_round_trip(frame: bytes) -> None:
    """Decode; what is accepted can be written and read again."""
    with contextlib.suppress(MalformedEvent):
        event = decode(frame)
        if as_read(event) == event:  # no partition names that would be rewritten, nor NaN
            assert decode(encode(event)) == event


@fuzz
@given(mutations())
def test_damaged_recordings_are_read_or_refused(frame: bytes) -> None:
    """Recorded frames with random damage."""
    check_round_trip(frame)


@fuzz
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_frame_is_read_or_refused(schema: bytes, datum: bytes) -> None:
    """Frames with an arbitrary schema and datum."""
    check_round_trip(MAGIC + len(schema).to_bytes(2) + schema + datum)
    check_round_trip(schema)


@fuzz
@given(st.sampled_from(FRAMES), st.binary(max_size=400))
def test_any_datum_of_a_recorded_schema_is_read_or_refused(frame: bytes, datum: bytes) -> None:
    """Arbitrary bytes are decoded with a recorded schema."""
    check_round_trip(frame[: 4 + int.from_bytes(frame[2:4])] + datum)


@fuzz
@given(st.sampled_from(["icefloe.layout", "icefloe.batch", "icefloe.ranges"]), st.binary())
def test_any_header_is_read_or_refused(key: str, value: bytes) -> None:
    """Arbitrary bytes in the headers of Icefloe."""
    with contextlib.suppress(MalformedEvent):
        headers = decode_headers([(key, value)])
        assert decode_headers(encode_headers(headers)) == headers
