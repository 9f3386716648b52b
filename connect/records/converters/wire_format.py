"""How a message names its schema: the forms of Confluent's serializers.

A message begins with 0 and a 4-byte id, or with 1 and a 16-byte GUID; or it is bare and the header
``__key_schema_id`` or ``__value_schema_id`` holds one of these. Protobuf adds the place of the
message type within its file, behind the id or GUID.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from connect.records.converters.binary_values import Malformed
from connect.records.converters.converter import Headers, Role

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17
INDEXES_MAX: Final = 100
HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}


@dataclass(frozen=True, slots=True)
class Framed:
    """Where a message's schema and datum are.

    Attributes:
        schema: an id, or a GUID as text.
        start: first byte of the datum.
        indexes: place of a Protobuf message type; empty when not asked for.
    """

    schema: int | str
    start: int
    indexes: tuple[int, ...] = ()


def framed(role: Role, headers: Headers, data: bytes, *, has_indexes: bool = False) -> Framed:
    """Find the schema of a message.

    Args:
        role: which side of the record.
        headers: of the record; the last one of the name counts.
        data: the message.
        has_indexes: whether the id is followed by the place of a message type.

    Raises:
        Malformed: ``bad_framing``.
    """
    header = HEADERS.get(role)
    reported = next((value for name, value in reversed(headers) if name == header and value), None)
    if reported is not None:
        schema, end = _schema(reported)
        return Framed(schema, 0, _indexes(reported, end)[0] if has_indexes else ())
    schema, end = _schema(data)
    if not has_indexes:
        return Framed(schema, end)
    indexes, end = _indexes(data, end)
    return Framed(schema, end, indexes)


def _schema(data: bytes) -> tuple[int | str, int]:
    if len(data) >= ID_BYTES and data[0] == ID_MAGIC:
        return int.from_bytes(data[1:ID_BYTES], "big"), ID_BYTES
    if len(data) >= GUID_BYTES and data[0] == GUID_MAGIC:
        return str(uuid.UUID(bytes=data[1:GUID_BYTES])), GUID_BYTES
    raise Malformed(
        "the message does not begin with the id of a schema: it was not written with a schema "
        "registry's serializer",
        "bad_framing",
    )


def _indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    try:
        count, end = _zigzag(data, start)
        if count == 0:
            return (0,), end
        if 0 < count <= INDEXES_MAX:
            found = []
            for _ in range(count):
                index, end = _zigzag(data, end)
                found.append(index)
            return tuple(found), end
    except (IndexError, OverflowError):
        pass  # cut short, or a number that is too long
    raise Malformed("the place of the message type is malformed", "bad_framing")


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    """Return a zig-zag number of at most 64 bits and the position behind it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise OverflowError
    if value >> 64:
        raise OverflowError
    return (value >> 1) ^ -(value & 1), position
