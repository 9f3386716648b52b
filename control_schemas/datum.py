"""Avro's binary encoding, the part that control events use.

Rules of this file:
- Reading is paid from a budget before anything is allocated; a count or a length in the message
  is believed only after it was compared with what is there.
- A cursor that runs off the end raises IndexError; ``codec.decode`` turns it into MalformedEvent.

Own code although fastavro is at hand: fastavro allocates what the message asks for, cannot read
the schema text as Java writes it, and needs six times as long to write a file list (it judges
every union branch by validating the value). Tests hold both to the same bytes.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from control_schemas.errors import MalformedEvent, UnencodableEvent
from control_schemas.limits import STRING_BYTES_MAX

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_VARINT_BITS_MAX = 63


class Cursor:
    """A position in a frame, and the values that may still be read from it."""

    __slots__ = ("data", "position", "values_left")

    def __init__(self, data: bytes, position: int, values_left: int) -> None:
        self.data = data
        self.position = position
        self.values_left = values_left

    def charge(self, values: int) -> None:
        """Pay for values about to be read.

        Raises:
            MalformedEvent: the budget is spent.
        """
        self.values_left -= values
        if self.values_left < 0:
            raise MalformedEvent("datum holds more values than any event")


# ---------------------------------------------------------------- reading


def read_long(cursor: Cursor) -> int:
    """A zigzag varint of up to 64 bits."""
    data = cursor.data
    position = cursor.position
    byte = data[position]
    number = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        if shift > _VARINT_BITS_MAX:
            raise MalformedEvent("datum: a number takes more than 64 bits")
        position += 1
        byte = data[position]
        number |= (byte & 0x7F) << shift
        shift += 7
    cursor.position = position + 1
    if number >> 64:
        raise MalformedEvent("datum: a number takes more than 64 bits")
    return (number >> 1) ^ -(number & 1)


def read_int(cursor: Cursor) -> int:
    """A zigzag varint of up to 32 bits."""
    number = read_long(cursor)
    if not _INT_MIN <= number <= _INT_MAX:
        raise MalformedEvent("datum: an int takes more than 32 bits")
    return number


def read_boolean(cursor: Cursor) -> bool:
    """One byte, 0 or 1."""
    byte = cursor.data[cursor.position]
    if byte > 1:
        raise MalformedEvent(f"datum: a boolean is {byte}")
    cursor.position += 1
    return byte == 1


def read_exactly(cursor: Cursor, size: int) -> bytes:
    """The next bytes, all of them.

    Raises:
        IndexError: fewer are left.
    """
    start = cursor.position
    end = start + size
    if end > len(cursor.data):
        raise IndexError
    cursor.position = end
    return cursor.data[start:end]


def read_bytes(cursor: Cursor) -> bytes:
    """A length, and as many bytes."""
    size = read_long(cursor)
    if not 0 <= size <= STRING_BYTES_MAX:
        raise MalformedEvent(f"datum: a string of {size} bytes, more than {STRING_BYTES_MAX}")
    return read_exactly(cursor, size)


def read_string(cursor: Cursor) -> str:
    """A length, and as many bytes of UTF-8."""
    try:
        return read_bytes(cursor).decode()
    except UnicodeDecodeError:
        raise MalformedEvent("datum: a string is not UTF-8") from None


def read_float(cursor: Cursor) -> float:
    """Four bytes, little-endian."""
    return float(_FLOAT.unpack(read_exactly(cursor, 4))[0])


def read_double(cursor: Cursor) -> float:
    """Eight bytes, little-endian."""
    return float(_DOUBLE.unpack(read_exactly(cursor, 8))[0])


def read_block_count(cursor: Cursor) -> int:
    """Items in the next block of an array or map; 0 ends it."""
    count = read_long(cursor)
    if count < 0:  # the block's size in bytes follows; the items say the same
        read_long(cursor)
        return -count
    return count


# ---------------------------------------------------------------- writing


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# Column ids, counts and sizes are small: one look-up instead of a loop.
_SMALL = 8192
_SMALL_VARINTS = tuple(_varint(n) for n in (*range(_SMALL), *range(-_SMALL, 0)))


def long_bytes(number: int) -> bytes:
    """Encode a long.

    Raises:
        UnencodableEvent: more than 64 bits.
    """
    if -_SMALL <= number < _SMALL:
        return _SMALL_VARINTS[number]
    if not _LONG_MIN <= number <= _LONG_MAX:
        _refuse(number, "long")
    return _varint(number)


def int_bytes(number: int) -> bytes:
    """Encode an int.

    Raises:
        UnencodableEvent: more than 32 bits.
    """
    if not _INT_MIN <= number <= _INT_MAX:
        _refuse(number, "int")
    return long_bytes(number)


def bytes_bytes(value: bytes) -> bytes:
    """Encode a byte string.

    Raises:
        UnencodableEvent: longer than any reader of ours takes.
    """
    if len(value) > STRING_BYTES_MAX:
        raise UnencodableEvent(f"a string of {len(value)} bytes, more than {STRING_BYTES_MAX}")
    return long_bytes(len(value)) + value


def string_bytes(value: str) -> bytes:
    """Encode a string.

    Raises:
        UnencodableEvent: too long, or holds half a surrogate pair.
    """
    try:
        return bytes_bytes(value.encode())
    except UnicodeEncodeError:
        raise UnencodableEvent("a string holds half a surrogate pair") from None


def float_bytes(value: float) -> bytes:
    """Encode a float.

    Raises:
        UnencodableEvent: beyond the range of 32 bits.
    """
    try:
        return _FLOAT.pack(value)
    except OverflowError:
        _refuse(value, "float")


def double_bytes(value: float) -> bytes:
    """Encode a double."""
    return _DOUBLE.pack(value)


def _refuse(value: float, kind: str) -> NoReturn:
    raise UnencodableEvent(f"{value} does not fit into {kind}")
