"""Encodes and decodes Avro data with fastavro, with checks that fastavro does not make.

Rules of this file:
- fastavro receives types with resolved names and without logical types, so that values keep their
  form on the wire: an enum is its number, a boolean its byte.
- List items always have at least one byte, so a datum of n bytes has at most n items. Their memory
  is bounded before they are decoded.
- fastavro stops at the end of a datum. It accepts numbers of more than 64 bits, negative branches
  of unions and ints of more than 32 bits. ``CheckedSource`` refuses the first, ``_Branches`` the
  second, and the code that uses the values the third.
"""

from __future__ import annotations

import io
import re
import sys
from typing import IO, Any, Protocol, cast

import fastavro

from control_schemas.avro import AvroType
from control_schemas.errors import MalformedEvent
from control_schemas.limits import VALUES_MAX

BOOLEAN_TAG = "fixed1"
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
_LONG_MIN = -(2**63)
_CONTINUED = b"\x80"
_LAST_BYTE = 9  # of a number of 64 bits, counted from 0
_LAST_BYTE_MAX = b"\x01"
# nine continuation bytes and one more byte: text, or a number of possibly more than 64 bits, or
# the smallest number, which fastavro accepts as the item count of an empty list
_DOUBTFUL = re.compile(rb"[\x80-\xff]{9}[\x02-\xff]|\xff{9}\x01")


class Source(Protocol):
    """The interface from which fastavro reads."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""


def source_of(data: bytes, reads_max: int) -> Source:
    """Return a source for a datum.

    Args:
        data: the datum, which may be followed by other bytes.
        reads_max: see ``Decoder``.
    """
    if len(data) <= reads_max and not may_hold_long_numbers(data):
        return io.BytesIO(data)
    return CheckedSource(data, reads_max)


def may_hold_long_numbers(data: bytes) -> bool:
    """Return whether a datum may contain a number of more than 64 bits, or the smallest number."""
    return _DOUBTFUL.search(data) is not None


class CheckedSource:
    """A source that refuses numbers of more than 64 bits and too many values.

    A one-byte string counts as a byte of the following number, unless the reader calls
    ``end_content``. Events do not need this call: their strings are followed only by counts,
    branches and keys, which are short numbers.

    Args:
        data: the datum, which may be followed by other bytes.
        reads_max: see ``Decoder``; None for no bound.
    """

    __slots__ = ("_data", "_reads_left", "_run", "position", "smallest")

    def __init__(self, data: bytes, reads_max: int | None = None) -> None:
        self._data = data
        self.position = 0
        self._reads_left = sys.maxsize if reads_max is None else reads_max
        self._run = 0  # bytes of the current number so far
        self.smallest = 0  # occurrences of the smallest 64-bit number

    def read(self, size: int, /) -> bytes:
        """Return the next bytes; fastavro reads numbers byte by byte."""
        start = self.position
        end = start + size
        if size < 0 or end > len(self._data):
            raise EOFError
        self.position = end
        data = self._data[start:end]
        if size == 1:
            if self._run == _LAST_BYTE and data > _LAST_BYTE_MAX:
                raise MalformedEvent("datum: a number has more than 64 bits")
            if data >= _CONTINUED:
                self._run += 1
                return data
            if self._run == _LAST_BYTE and self._data[start - _LAST_BYTE : start] == b"\xff" * 9:
                self.smallest += 1
        self._run = 0
        self._reads_left -= 1
        if self._reads_left < 0:
            raise MalformedEvent("datum holds more values than any event")
        return data

    def end_content(self) -> None:
        """Record that the last byte was content, not part of a number."""
        self._run = 0


class Decoder:
    """Decodes data of one type.

    Attributes:
        reads_max: maximum number of scalars in a datum. It guarantees that there are at most
            ``VALUES_MAX`` values, lists and records included.

    Raises:
        MalformedEvent: the items of a list may have no bytes.
    """

    def __init__(self, node: AvroType) -> None:
        self.reads_max = int(VALUES_MAX / _density(node))
        schema = wire_schema(node)
        guard_unions(schema["fields"][0])
        self._schema = schema

    def read(self, source: Source) -> Any:
        """Decode one datum.

        Returns:
            None, int, float, str, bytes, list or dict; a boolean as one byte.

        Raises:
            MalformedEvent: the datum is truncated, has a string that is not UTF-8, too long a
                number, or too many values.
        """
        before = getattr(source, "smallest", 0)
        try:
            datum = fastavro.schemaless_reader(cast("IO[bytes]", source), self._schema)
            value = cast("dict[str, Any]", datum)["value"]
        except (EOFError, IndexError):
            raise MalformedEvent("datum is truncated") from None
        except UnicodeDecodeError:
            raise MalformedEvent("datum: a string is not UTF-8") from None
        smallest = getattr(source, "smallest", 0) - before
        if smallest and smallest != count_smallest(value):
            raise MalformedEvent("datum holds more values than any event")
        return value


def encoded(schema: Any, value: Any) -> bytes:
    """Encode a datum.

    Args:
        schema: from ``wire_schema``.
        value: in fastavro's form; a union's value is a pair of branch name and value.

    Raises:
        OverflowError: an integer has more than 64 bits.
        UnicodeEncodeError: a string contains an unpaired surrogate.
    """
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"value": value})
    return out.getvalue()


def wire_schema(node: AvroType) -> Any:
    """Return a parsed schema for fastavro: a record with the field ``value`` of the type."""
    fields = [{"name": "value", "type": _Plain().schema(node)}]
    return fastavro.parse_schema({"type": "record", "name": "datum", "fields": fields})


def fixed_tag(size: int) -> str:
    """Return the name of a fixed in unions of ``wire_schema``."""
    return f"fixed{size}"


class _Plain:
    """Converts types to anonymous schemas: fixed types are named by size, records by number."""

    def __init__(self) -> None:
        self._sizes: set[int] = set()
        self._records = 0

    def schema(self, node: AvroType) -> Any:
        """Return the schema of a type; the depth of the tree bounds the recursion."""
        if node.kind == "record":
            self._records += 1
            name = f"record{self._records}"
            fields = [{"name": item.name, "type": self.schema(item.type)} for item in node.fields]
            return {"type": "record", "name": name, "fields": fields}
        if node.kind == "union":
            return [self.schema(branch) for branch in node.branches]
        if node.items is not None:
            inner = "items" if node.kind == "array" else "values"
            return {"type": node.kind, inner: self.schema(node.items)}
        if node.kind in ("fixed", "boolean"):
            return self._fixed(node.size if node.kind == "fixed" else 1)
        return "int" if node.kind == "enum" else node.kind

    def _fixed(self, size: int) -> Any:
        name = fixed_tag(size)
        if size in self._sizes:
            return name
        self._sizes.add(size)
        return {"type": "fixed", "name": name, "size": size}


class _Branches(list[Any]):
    """The branches of a union; refuses negative indexes, which fastavro would accept."""

    def __len__(self) -> int:
        return 0  # the interpreter adds the length to a negative index

    def __getitem__(self, index: Any) -> Any:
        count = list.__len__(self)
        if not 0 <= index < count:
            raise MalformedEvent(f"datum: branch {index} of a union of {count}")
        return list.__getitem__(self, index)


def guard_unions(holder: dict[str, Any]) -> None:
    """Replace the unions of a parsed schema by unions that refuse negative branches."""
    for inner in ("type", "items", "values"):
        schema = holder.get(inner)
        if isinstance(schema, list):
            for branch in schema:
                if isinstance(branch, dict):
                    guard_unions(branch)
            holder[inner] = _Branches(schema)
        elif isinstance(schema, dict):
            guard_unions(schema)
    for field in holder.get("fields", ()):
        guard_unions(field)


# ---------------------------------------------------------------- bounds of a datum


def _reads(node: AvroType) -> int:
    """Return the number of scalars in the smallest datum, with union branches and list ends."""
    if node.kind == "record":
        return sum(_reads(item.type) for item in node.fields)
    if node.kind == "union":
        return 1 + min(_reads(branch) for branch in node.branches)
    return 0 if node.kind == "null" or (node.kind == "fixed" and not node.size) else 1


def _values(node: AvroType) -> int:
    """Return the number of values in the largest datum; a list counts as one value."""
    if node.kind == "union":
        return max(_values(branch) for branch in node.branches)
    return 1 + sum(_values(item.type) for item in node.fields)


def _density(node: AvroType) -> float:
    """Return the maximum of values per scalar over all lists; at least 1."""
    inner = [*node.branches, *(item.type for item in node.fields)]
    if node.items is None:
        return max((_density(part) for part in inner), default=1.0)
    key = int(node.kind == "map")
    reads = _reads(node.items) + key
    if not reads:
        raise MalformedEvent("schema: items of a list may have no bytes")
    return max(1.0, (_values(node.items) + key) / reads, _density(node.items))


def count_smallest(value: Any) -> int:
    """Return how many values are the smallest 64-bit number."""
    if isinstance(value, dict):
        return sum(count_smallest(item) for item in value.values())
    if isinstance(value, list):
        return sum(count_smallest(item) for item in value)
    return int(value == _LONG_MIN and isinstance(value, int))
