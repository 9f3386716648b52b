"""The wire format of Confluent's serializers, which contains the schema id of a message.

A message begins with 0 and a 4-byte schema id, or with 1 and a 16-byte GUID. Alternatively, the
header ``__key_schema_id`` or ``__value_schema_id`` contains one of these. In Protobuf, the position
of the message type within its file follows the id or GUID.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from connect.records.converters.converter import Headers, Role
from connect.records.converters.payload_errors import Malformed

ID_MAGIC: Final = 0
GUID_MAGIC: Final = 1
ID_BYTES: Final = 5
GUID_BYTES: Final = 17
INDEXES_MAX: Final = 100
HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}


@dataclass(frozen=True, slots=True)
class Framed:
    """The schema id of a message and the position of its datum.

    Attributes:
        schema: the schema id, or the GUID as text.
        start: index of the datum's first byte.
        indexes: position of a Protobuf message type; empty for other formats.
    """

    schema: int | str
    start: int
    indexes: tuple[int, ...] = ()


def framed(role: Role, headers: Headers, data: bytes, *, has_indexes: bool = False) -> Framed:
    """Read the schema id of a message.

    Args:
        role: key or value.
        headers: headers of the record; the last header with the name counts.
        data: the message.
        has_indexes: whether the position of a message type follows the id.

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
        "the message does not begin with a schema id: its producer does not use a schema "
        "registry serializer",
        "bad_framing",
    )


def _indexes(data: bytes, start: int) -> tuple[tuple[int, ...], int]:
    try:
        count, end = _zigzag(data, start)
        if count == 0:
            return (0,), end
        if 0 < count <= INDEXES_MAX:
            indexes = []
            for _ in range(count):
                index, end = _zigzag(data, end)
                indexes.append(index)
            return tuple(indexes), end
    except (IndexError, OverflowError):
        pass  # the message is truncated, or a number that is too long
    raise Malformed("the position of the message type is malformed", "bad_framing")


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
