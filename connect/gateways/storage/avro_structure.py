"""Checks of the bytes of Avro values, made from the readers that decode them.

Rules of this file:
- A check walks over one value as Avro encodes it, and returns the place behind it. It makes no
  objects of the content, and adds what those of PyIceberg take in memory, besides their bytes.
- A place behind the end of the bytes may be returned: the caller compares the last place. A byte
  that does not exist raises an error.
- Elements of lists and maps have at least a byte each: a count costs what it claims.
- A value that a reader would skip is checked as one that is read: both end at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeAlias

from pyiceberg.avro import reader as readers
from pyiceberg.avro.resolver import EnumReader

Check: TypeAlias = Callable[[bytes, int, list[int]], int]
"""Takes bytes, a place and a sum of memory, to which it adds; returns the place behind a value."""
_Elements: TypeAlias = Callable[[bytes, int, int, list[int]], int]
"""As ``Check``, for so many elements."""

_MORE: Final = 0x80
_SECOND: Final = 2  # the second branch of a union, as Avro encodes it
_LONG_BITS: Final = 64
_RUN: Final = 1_000  # numbers that one pattern matches
_STRUCT_BYTES: Final = 320
_FIELD_BYTES: Final = 48
_ELEMENT_BYTES: Final = 16
_PAIR_BYTES: Final = 160
_SIZES: Final[dict[type, int]] = {
    readers.BooleanReader: 1,
    readers.FloatReader: 4,
    readers.DoubleReader: 8,
    readers.UUIDReader: 16,
    readers.UnknownReader: 0,
    readers.NoneReader: 0,
    readers.DefaultReader: 0,
}


class MalformedAvroError(Exception):
    """The bytes are not what the schema says."""


def long_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it.

    Raises:
        IndexError: the bytes end. MalformedAvroError: it has more than 64 bits.
    """
    byte = data[at]
    at += 1
    if byte < _MORE:
        return (byte >> 1) ^ -(byte & 1), at
    number, shift = byte & 0x7F, 7
    while byte >= _MORE:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if number >> _LONG_BITS or shift > _LONG_BITS + 6:
            raise MalformedAvroError("a number has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at


def check_of(reader: readers.Reader, *, is_skipped: bool = False) -> Check:
    """Return the check of what a reader reads or skips.

    Raises:
        MalformedAvroError: there is none: the schema is not one that manifests have.
    """
    if isinstance(reader, EnumReader):
        return check_of(reader.reader)
    if (size := _size_of(reader, is_skipped=is_skipped)) is not None:
        return _fixed(size) if size else _NOTHING
    if isinstance(reader, readers.IntegerReader):  # and dates, times and timestamps
        return _number
    if isinstance(reader, readers.StringReader | readers.BinaryReader):
        return _bytes
    if isinstance(reader, readers.OptionReader):
        return _option(check_of(reader.option, is_skipped=is_skipped))
    if isinstance(reader, readers.StructReader):
        return _struct(reader, is_skipped=is_skipped)
    if isinstance(reader, readers.ListReader):
        return _list(reader, is_skipped=is_skipped)
    if isinstance(reader, readers.MapReader):
        return _map(reader, is_skipped=is_skipped)
    raise MalformedAvroError(f"values of {type(reader).__name__} are not known")


def _size_of(reader: readers.Reader, *, is_skipped: bool) -> int | None:
    """Return the size of values that have only one; None for other values."""
    if isinstance(reader, readers.FixedReader):
        return len(reader)
    if isinstance(reader, readers.DecimalReader) and not is_skipped:
        return int(reader._length)  # noqa: SLF001 - what it reads; what it skips is another size
    return _SIZES.get(type(reader))


def _number(data: bytes, at: int, _: list[int]) -> int:
    if data[at] < _MORE:
        return at + 1
    return long_at(data, at)[1]


def _bytes(data: bytes, at: int, _: list[int]) -> int:
    size, at = long_at(data, at)
    if size < 0:
        raise MalformedAvroError("a length is negative")
    return at + size


def _fixed(size: int) -> Check:
    if size < 0:
        raise MalformedAvroError("a length is negative")

    def check(_: bytes, at: int, __: list[int]) -> int:
        return at + size

    return check


def _option(inner: Check) -> Check:
    def check(data: bytes, at: int, memory: list[int]) -> int:
        branch = data[at]
        if branch == 0:
            return at + 1
        if branch != _SECOND:
            raise MalformedAvroError("a union has no such branch")
        return inner(data, at + 1, memory)

    return check


def _struct(reader: readers.StructReader, *, is_skipped: bool) -> Check:
    checks = tuple(
        check_of(each, is_skipped=is_skipped or place is None)
        for place, each in reader.field_readers
    )
    own = _STRUCT_BYTES + _FIELD_BYTES * len(checks)
    reading = tuple(each for each in checks if each is not _NOTHING)

    def check(data: bytes, at: int, memory: list[int]) -> int:
        memory[0] += own
        for each in reading:
            at = each(data, at, memory)
        return at

    return check


def _list(reader: readers.ListReader, *, is_skipped: bool) -> Check:
    if isinstance(reader.element, readers.IntegerReader):
        return _collection(_numbers, _ELEMENT_BYTES)
    return _collection(_each(check_of(reader.element, is_skipped=is_skipped)), _ELEMENT_BYTES)


def _map(reader: readers.MapReader, *, is_skipped: bool) -> Check:
    if isinstance(reader.key, readers.IntegerReader):
        if isinstance(reader.value, readers.IntegerReader):
            return _collection(_number_pairs, 2 * _ELEMENT_BYTES)
        if isinstance(reader.value, readers.BinaryReader):
            return _collection(_bytes_by_number, _PAIR_BYTES)
    key = check_of(reader.key, is_skipped=is_skipped)
    value = check_of(reader.value, is_skipped=is_skipped)

    def pair(data: bytes, at: int, memory: list[int]) -> int:
        return value(data, key(data, at, memory), memory)

    return _collection(_each(pair), _PAIR_BYTES)


def _collection(elements: _Elements, own: int) -> Check:
    """Return the check of a list or a map.

    Args:
        elements: checks so many.
        own: memory of each, besides its bytes.
    """

    def check(data: bytes, at: int, memory: list[int]) -> int:
        while True:
            count, at = long_at(data, at)
            if count == 0:
                return at
            end = None
            if count < 0:
                size, at = long_at(data, at)
                count, end = -count, at + size
            if count > len(data) - at:
                raise MalformedAvroError("a list has more elements than bytes")
            memory[0] += count * own
            at = elements(data, at, count, memory)
            if end is not None and at != end:
                raise MalformedAvroError("a list is not as long as it says")

    return check


def _each(element: Check) -> _Elements:
    def check(data: bytes, at: int, count: int, memory: list[int]) -> int:
        for _ in range(count):
            before = at
            at = element(data, at, memory)
            if at == before:
                raise MalformedAvroError("an element of a list has no bytes")
        return at

    return check


def _numbers(data: bytes, at: int, count: int, _: list[int]) -> int:
    while count > 0:
        part = min(count, _RUN)
        match = _run(part).match(data, at)
        if match is None:
            raise MalformedAvroError("a list ends early, or a number has more than 64 bits")
        at, count = match.end(), count - part
    return at


def _number_pairs(data: bytes, at: int, count: int, memory: list[int]) -> int:
    return _numbers(data, at, 2 * count, memory)


def _bytes_by_number(data: bytes, at: int, count: int, __: list[int]) -> int:
    for _ in range(count):
        while data[at] >= _MORE:
            at += 1
        size = data[at + 1]
        if size < _MORE and not size & 1:
            at += 2 + (size >> 1)
        else:
            size, at = long_at(data, at + 1)
            if size < 0:
                raise MalformedAvroError("a length is negative")
            at += size
    return at


@lru_cache(maxsize=_RUN)
def _run(count: int) -> re.Pattern[Any]:
    return re.compile(rb"(?:[\x80-\xff]{0,9}+[\x00-\x7f]){%d}+" % count)


_NOTHING: Final = _fixed(0)
