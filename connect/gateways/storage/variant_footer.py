"""Variants in the footers of Parquet files: Arrow's writer cannot mark them from Python.

Rules of this file:
- A variant is a group of two binary columns, which Arrow writes. Only the group's logical type is
  missing. It is put into the schema in the footer, in Thrift's compact protocol.
- The rest of the footer is copied. Positions in it are those of columns, which come before it.

Source:
    Parquet's ``parquet.thrift``: ``FileMetaData``, ``SchemaElement``, ``LogicalType.VARIANT``;
    Thrift's ``thrift-compact-protocol.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

_MAGIC: Final = b"PAR1"
_TAIL_BYTES: Final = 8  # the footer's length and the magic
_SCHEMA: Final = 2  # fields of FileMetaData and SchemaElement
_NAME: Final = 4
_CHILDREN: Final = 5
_LOGICAL_TYPE: Final = 10
_STOP: Final = 0
_STRUCT: Final = 12
_VARIANT_TYPE: Final = 16
_VARIANT: Final = bytes([_STRUCT, 32, 0x13, 1, 0, 0])
"""A union whose field 16 is a struct whose field 1, a byte, is 1: the version of the encoding."""
_BOOLEANS: Final = frozenset({1, 2})
_BYTE: Final = 3
_VARINTS: Final = frozenset({4, 5, 6})
_DOUBLE: Final = 7
_BINARY: Final = 8
_LISTS: Final = frozenset({9, 10})


class VariantFooter:
    """A stream for Arrow's writer that changes the footer on its way to a file.

    Args:
        stream: of the file.
        paths: names that lead to each variant.
    """

    def __init__(self, stream: Any, paths: Collection[tuple[str, ...]]) -> None:
        self._stream = stream
        self._paths = paths
        self._held: list[bytes] | None = None

    def end(self, writer: pq.ParquetWriter) -> None:
        """Close the writer, and write the footer with the variants marked."""
        self._held = []
        writer.close()
        tail = b"".join(self._held)
        self._held = None
        size = int.from_bytes(tail[-_TAIL_BYTES:-4], "little")
        footer = marked(tail[-_TAIL_BYTES - size : -_TAIL_BYTES], self._paths)
        self._stream.write(tail[: -_TAIL_BYTES - size])
        self._stream.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def write(self, data: Any) -> int:
        """Write, or keep what belongs to the end of the file."""
        if self._held is None:
            self._stream.write(data)
        else:
            self._held.append(bytes(data))
        return len(data)

    def tell(self) -> int:
        """Return the position in the file as Arrow's writer counts it."""
        held = sum(map(len, self._held)) if self._held is not None else 0
        return int(self._stream.tell()) + held

    def flush(self) -> None:
        """Do nothing: the file's owner closes it."""

    def close(self) -> None:
        """Do nothing: the file's owner closes it."""

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self._stream.closed)


def marked(footer: bytes, paths: Collection[tuple[str, ...]]) -> bytes:
    """Return a footer whose groups at the paths are variants.

    Raises:
        ValueError: a path is not in the schema.
    """
    out: list[bytes] = []
    copied = 0
    for each in _elements(footer):
        if each.path in paths:
            delta = _LOGICAL_TYPE - each.last_field
            out += [footer[copied : each.end], bytes([delta << 4 | _STRUCT]), _VARIANT]
            copied = each.end
    if len(out) != 3 * len(paths):
        raise ValueError("the schema of a file lacks a variant of its table")
    return b"".join((*out, footer[copied:]))


def variants_in(file: bytes) -> frozenset[tuple[str, ...]]:
    """Return the names that lead to each variant in a file, or in one with a footer only."""
    size = int.from_bytes(file[-_TAIL_BYTES:-4], "little")
    footer = file[-_TAIL_BYTES - size : -_TAIL_BYTES]
    return frozenset(each.path for each in _elements(footer) if each.is_variant)


class _Element(NamedTuple):
    """An element of a schema.

    Attributes:
        path: names that lead to it.
        is_variant: whether its logical type is that of variants.
        last_field: last field that it has.
        end: position of its end in the footer.
    """

    path: tuple[str, ...]
    is_variant: bool
    last_field: int
    end: int


def _elements(footer: bytes) -> Iterator[_Element]:
    """Yield the elements of the schema in a footer."""
    cursor = _Cursor(footer)
    field, kind = cursor.field(0)
    while field != _SCHEMA:
        cursor.skip(kind)
        field, kind = cursor.field(field)
    cursor.list_header()
    yield from cursor.schema_elements()


class _Cursor:
    """Reads Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def schema_elements(self, parent: tuple[str, ...] | None = None) -> Iterator[_Element]:
        """Read an element and those below it."""
        name, children, is_variant = "", 0, False
        field, kind = self.field(0)
        last_field = 0
        while kind != _STOP:
            if field == _NAME:
                name = self._bytes().decode()
            elif field == _CHILDREN:
                children = self._signed()
            elif field == _LOGICAL_TYPE:
                of_type, inner = self.field(0)
                is_variant = of_type == _VARIANT_TYPE
                self.skip_fields(of_type, inner)
            else:
                self.skip(kind)
            last_field = field
            field, kind = self.field(field)
        path = () if parent is None else (*parent, name)
        yield _Element(path, is_variant, last_field, self._at - 1)
        for _ in range(children):
            yield from self.schema_elements(path)

    def field(self, before: int) -> tuple[int, int]:
        """Read the header of a field: its id and type; the type 0 ends the struct."""
        header = self._byte()
        kind = header & 15
        if kind == _STOP:
            return before, _STOP
        delta = header >> 4
        return (before + delta if delta else self._signed()), kind

    def list_header(self) -> tuple[int, int]:
        """Read the header of a list: its size, and the type of its elements."""
        header = self._byte()
        size = header >> 4
        return (self._unsigned() if size == 15 else size), header & 15

    def skip(self, kind: int) -> None:
        """Skip a value of a field."""
        if kind == _BYTE:
            self._at += 1
        elif kind in _VARINTS:
            self._unsigned()
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            self._bytes()
        elif kind in _LISTS:
            size, element = self.list_header()
            for _ in range(size):
                self.skip(_BYTE if element in _BOOLEANS else element)
        elif kind == _STRUCT:
            self.skip_fields(*self.field(0))
        elif kind not in _BOOLEANS:  # the header of a field holds them
            raise ValueError(f"Thrift's type {kind} is not expected in a footer")

    def skip_fields(self, field: int, kind: int) -> None:
        """Skip the rest of a struct, from a field whose header was read."""
        while kind != _STOP:
            self.skip(kind)
            field, kind = self.field(field)

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _unsigned(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 128:
            number |= (byte & 127) << shift
            shift += 7
        return number | byte << shift

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)

    def _bytes(self) -> bytes:
        size = self._unsigned()
        self._at += size
        return self._data[self._at - size : self._at]
