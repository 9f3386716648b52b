"""The frame of a datum: ``C2 01``, length of the schema (u16), schema text, datum.

Java writes the schema text with ``DataOutputStream.writeUTF``: in this modified UTF-8, a character
outside the Basic Multilingual Plane is two three-byte surrogates. The datum uses plain UTF-8.
"""

from __future__ import annotations

from control_schemas.errors import MalformedEvent, UnencodableEvent
from control_schemas.limits import FRAME_BYTES_MAX, SCHEMA_BYTES_MAX

MAGIC = b"\xc2\x01"
_PREFIX_BYTES = 4


def frame_prefix(schema_text: str) -> bytes:
    """Return the bytes before the datum.

    Raises:
        UnencodableEvent: the schema text has more than 65,535 bytes.
    """
    utf16 = schema_text.encode("utf-16-be")
    units = (utf16[i : i + 2] for i in range(0, len(utf16), 2))
    schema = "".join(chr(int.from_bytes(unit)) for unit in units).encode("utf-8", "surrogatepass")
    if len(schema) > SCHEMA_BYTES_MAX:
        raise UnencodableEvent(f"schema of {len(schema)} bytes, more than {SCHEMA_BYTES_MAX}")
    return MAGIC + len(schema).to_bytes(2) + schema


def split_frame(frame: bytes) -> tuple[bytes, int]:
    """Split a frame into schema and datum.

    Returns:
        The undecoded schema, and the position of the datum.

    Raises:
        MalformedEvent: the frame is too long, has a wrong magic number, or ends in the schema.
    """
    if len(frame) > FRAME_BYTES_MAX:
        raise MalformedEvent(f"frame of {len(frame)} bytes, more than {FRAME_BYTES_MAX}")
    if len(frame) < _PREFIX_BYTES:
        raise MalformedEvent(f"frame of {len(frame)} bytes is shorter than its header")
    if frame[:2] != MAGIC:
        raise MalformedEvent(f"frame begins with {frame[:2].hex(' ')}, not {MAGIC.hex(' ')}")
    start = _PREFIX_BYTES + int.from_bytes(frame[2:4])
    if start > len(frame):
        raise MalformedEvent("frame ends in its schema")
    return frame[_PREFIX_BYTES:start], start


def is_of_another_group(frame: bytes, group: bytes) -> bool:
    """Return whether a frame cannot be an event of a group; nothing is decoded.

    Connectors share a control topic, and each reads the events of all. An event contains its
    connect group id, so a frame without these bytes is of another group. What is no frame at all
    may be a damaged event: the result is False.
    """
    return frame.startswith(MAGIC) and group not in frame


def schema_text(schema: bytes) -> str:
    """Decode modified UTF-8.

    Raises:
        MalformedEvent: ``writeUTF`` never writes such bytes, for example four-byte sequences.
    """
    try:
        units = schema.decode("utf-8", "surrogatepass")
        if units and max(units) > "\uffff":
            raise MalformedEvent("schema text is plain UTF-8 where Java writes modified UTF-8")
        return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise MalformedEvent(f"schema text is not modified UTF-8: {error.reason}") from None
