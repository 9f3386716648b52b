"""Avro's binary encoding: bounded reading, type by type.

Rules of this file:
- No message allocates more than it holds: lengths are checked against the bytes left, and items
  that take no bytes are counted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from connect.model.records import ConnectSchema, Date, Float32, Struct, Time, Timestamp
from connect.records.conversion.numbers import INT_MAX, INT_MIN

EMPTY_ITEMS_MAX: Final = 100_000
DECIMAL_BYTES_MAX: Final = 256
FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DAY_MS: Final = range(86_400_000)

Reader = Callable[["Input"], Any]


class Malformed(ValueError):  # noqa: N818 - a verdict about a message
    """The bytes are no datum of the schema.

    Args:
        message: what is wrong, without content.
        code: bounded identifier.
    """

    def __init__(self, message: str, code: str = "bad_avro") -> None:
        super().__init__(message)
        self.code = code


class Input:
    """Bytes being read."""

    __slots__ = ("data", "empty_items", "end", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.empty_items = EMPTY_ITEMS_MAX

    def take(self, size: int) -> bytes:
        """The next bytes."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise Malformed("a length reaches past the end of the message")
        self.position = start + size
        return self.data[start : start + size]

    def varint(self) -> int:
        """A zig-zag number of at most 64 bits."""
        data, position, end = self.data, self.position, self.end
        value = shift = 0
        while True:
            if position >= end:
                raise Malformed("the message ends within a number")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Malformed("a number has more than 64 bits")
        self.position = position
        if value >> 64:
            raise Malformed("a number has more than 64 bits")
        return (value >> 1) ^ -(value & 1)

    def block(self) -> int:
        """Items of the next block of an array or map; 0 at its end."""
        count = self.varint()
        if count < 0:
            count = -count
            size = self.varint()
            if size < 0 or size > self.end - self.position:
                raise Malformed("a block reaches past the end of the message")
        return count


# ------------------------------------------------------------------ primitives


def read_null(_: Input) -> None:
    """Nothing."""
    return


def read_boolean(source: Input) -> bool:
    """A boolean."""
    byte = source.take(1)[0]
    if byte > 1:
        raise Malformed("a boolean is neither 0 nor 1")
    return byte == 1


def read_int(source: Input) -> int:
    """A number of 32 bits."""
    value = source.varint()
    if not INT_MIN <= value <= INT_MAX:
        raise Malformed("an int has more than 32 bits")
    return value


def read_small(kind: str, low: int, high: int, source: Input) -> int:
    """A number that the schema says has fewer bits."""
    value = read_int(source)
    if not low <= value <= high:
        raise Malformed(f"the number is outside the range of {kind}", "out_of_range")
    return value


def read_long(source: Input) -> int:
    """A number of 64 bits."""
    return source.varint()


def read_float(source: Input) -> Float32:
    """A 32-bit float."""
    return Float32(FLOAT.unpack(source.take(4))[0])


def read_double(source: Input) -> float:
    """A 64-bit float."""
    value: float = _DOUBLE.unpack(source.take(8))[0]
    return value


def read_bytes(source: Input) -> bytes:
    """Bytes."""
    return source.take(source.varint())


def read_string(source: Input) -> str:
    """Text."""
    try:
        return source.take(source.varint()).decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8", "bad_text") from None


def read_date(source: Input) -> Date:
    """Days since 1970."""
    return Date(read_int(source))


def read_time(source: Input) -> Time:
    """Milliseconds of a day."""
    millis = read_int(source)
    if millis not in _DAY_MS:
        raise Malformed("a time of day is outside one day", "out_of_range")
    return Time(millis)


def read_timestamp(source: Input) -> Timestamp:
    """Milliseconds since 1970."""
    return Timestamp(source.varint())


def read_decimal(scale: int, source: Input) -> Decimal:
    """A decimal of bytes."""
    return decimal_of(read_bytes(source), scale)


def read_fixed_decimal(size: int, scale: int, source: Input) -> Decimal:
    """A decimal of a fixed."""
    return decimal_of(source.take(size), scale)


def decimal_of(data: bytes, scale: int) -> Decimal:
    """Big-endian two's complement as a decimal.

    Raises:
        Malformed: no bytes, or more than any column holds.
    """
    if not data or len(data) > DECIMAL_BYTES_MAX:
        raise Malformed(f"a decimal has no bytes or more than {DECIMAL_BYTES_MAX}")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


# ------------------------------------------------------------------ compound types


def read_enum(symbols: tuple[str, ...], source: Input) -> str:
    """A symbol."""
    index = source.varint()
    if not 0 <= index < len(symbols):
        raise Malformed("an enum has no such symbol")
    return symbols[index]


def read_fixed(size: int, source: Input) -> bytes:
    """Bytes of a fixed number."""
    return source.take(size)


def items(read: Callable[[], None], source: Input) -> None:
    """Read every item of an array or map."""
    while count := source.block():
        for _ in range(count):
            before = source.position
            read()
            if source.position == before:
                source.empty_items -= 1
                if source.empty_items < 0:
                    raise Malformed(
                        f"more than {EMPTY_ITEMS_MAX} items without content", "too_large"
                    )


def read_array(read: Reader, source: Input) -> list[Any]:
    """An array."""
    found: list[Any] = []
    items(lambda: found.append(read(source)), source)
    return found


def read_map(read: Reader, source: Input) -> dict[str, Any]:
    """A map with text keys."""
    found: dict[str, Any] = {}

    def entry() -> None:
        key = read_string(source)
        found[key] = read(source)

    items(entry, source)
    return found


def read_entries(read: Reader, source: Input) -> dict[Any, Any]:
    """A map whose entries are records, as Connect writes maps without text keys."""
    found: dict[Any, Any] = {}

    def entry() -> None:
        values = read(source).values
        key = values["key"]
        if type(key) in (dict, list, Struct):
            raise Malformed("a map, array or struct is no key here", "wrong_type")
        if key in found:
            raise Malformed("two entries of a map have one key", "ambiguous_name")
        found[key] = values["value"]

    items(entry, source)
    return found


def reader_of_branches(readers: list[Reader]) -> Reader:
    """Reader of a union with one type and null."""

    def read(source: Input) -> Any:
        return readers[branch(source, len(readers))](source)

    return read


def reader_of_union(wrapped: list[tuple[str | None, Reader]], schema: ConnectSchema) -> Reader:
    """Reader of a union of several types: a struct with a field each."""
    names = [name for name, _ in schema.fields]

    def read(source: Input) -> Struct | None:
        name, inner = wrapped[branch(source, len(wrapped))]
        if name is None:
            return None
        return Struct(schema, {**dict.fromkeys(names), name: inner(source)})

    return read


def branch(source: Input, count: int) -> int:
    """Which branch of a union follows."""
    index = source.varint()
    if not 0 <= index < count:
        raise Malformed("a union has no such branch")
    return index
