"""No frame of the largest size takes the process: read in a child of bounded memory and time."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from control_schemas.codec import encode
from control_schemas.frame import MAGIC
from control_schemas.limits import FRAME_BYTES_MAX
from tests.support.frames import (
    FILE,
    HUGE,
    frame_of,
    long_bytes,
    parts,
    payload_fields,
    start,
    written,
)

MEMORY_BYTES = 3 * 2**30
SECONDS_MAX = 60
CHILD = """
import sys
from control_schemas.codec import MalformedEvent, decode
try:
    decode(sys.stdin.buffer.read())
    print("read")
except MalformedEvent as error:
    print(error)
"""
MANY = 16_000_000


def refusal_text(frame: bytes) -> str:
    """What a child says of a frame."""
    assert len(frame) <= FRAME_BYTES_MAX
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=frame,
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.decode().strip()


def extra(kind: Any, datum: bytes, count: int = 0, filling: bytes = b"\0") -> Callable[[], bytes]:
    """A frame with an additional field of the payload at the end: this, and many bytes."""

    def frame() -> bytes:
        schema, rest = parts(start())
        payload_fields(schema).append({"name": "x", "type": kind})
        return frame_of(schema, rest + datum + filling * count)

    return frame


def pairs() -> bytes:
    """A file whose value counts fill the frame."""
    frame = encode(written(FILE))
    at = frame.rindex(b"PARQUET") + len(b"PARQUET") + 2 + 1 + 2 + 1
    many = 7_000_000
    return frame[:at] + b"\x02" + long_bytes(many) + b"\x02\x02" * many + b"\x00" + frame[at + 1 :]


RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
WIDE = {
    "type": "record",
    "name": "W",
    "fields": [
        {"name": "a", "type": "int"},
        *({"name": f"n{i}", "type": "null"} for i in range(1_000)),
    ],
}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (pairs, "more values"),
        (extra({"type": "array", "items": RECORD}, long_bytes(MANY), MANY), "more values"),
        (extra({"type": "array", "items": WIDE}, long_bytes(MANY), MANY), "more values"),
        (extra({"type": "array", "items": "null"}, HUGE), "may have no bytes"),
        (extra({"type": "array", "items": "boolean"}, HUGE), "truncated"),
        (extra({"type": "array", "items": "double"}, HUGE + bytes(80)), "truncated"),
        (extra({"type": "map", "values": "float"}, HUGE), "truncated"),
        (extra("long", b"", MANY, b"\xff"), "more than 64 bits"),
        (extra("string", HUGE, MANY), "truncated"),
        (extra("bytes", b"\x01", MANY), "truncated"),
        (lambda: MAGIC + b"\xff\xff" + b"[" * 65_535, "nested deeper"),
    ],
    ids=[
        "entries",
        "records",
        "wide records",
        "nothing",
        "booleans",
        "doubles",
        "floats",
        "a long number",
        "a long text",
        "a text of less than nothing",
        "brackets",
    ],
)
def test_oversized_claims_in_a_frame_are_refused_cheaply(
    frame: Callable[[], bytes], reason: str
) -> None:
    """Frames that claim more memory or time than any event are refused, and use neither."""
    assert reason in refusal_text(frame())
