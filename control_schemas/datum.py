"""Avro data, written and read by fastavro, with the checks that fastavro leaves out.

Rules of this file:
- fastavro gets the types alone, names resolved: no logical types, so that values stay as they are
  on the wire; an enum as its number; a boolean as its byte.
- No list holds items that take no byte, so a datum of n bytes holds at most n items. What these
  may take of memory is bounded before anything is read.
- Beyond the end of a datum fastavro stops. It does not refuse numbers of more than 64 bits,
  negative branches of unions and ints of more than 32 bits: ``_Branches`` and ``CheckedSource``
  refuse the first two, the reader of the values refuses the third.
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
# nine bytes that are continued and one more: text, or a number that may be too long, or the
# smallest of all, which fastavro takes for an empty list where it counts items
_DOUBTFUL = re.compile(rb"[\x80-\xff]{9}[\x02-\xff]|\xff{9}\x01")


class Source(Protocol):
    """What fastavro reads from."""

    def read(self, size: int, /) -> bytes:
        """The next bytes."""


def source_of(data: bytes, reads_max: int) -> Source:
    """What to read a datum from.

    Args:
        data: the datum, perhaps with bytes behind it.
        reads_max: see ``Decoder``.
    """
    if len(data) <= reads_max and not may_hold_long_numbers(data):
        return io.BytesIO(data)
    return CheckedSource(data, reads_max)


def may_hold_long_numbers(data: bytes) -> bool:
    """Return whether a datum may hold a number of more than 64 bits, or the smallest number."""
    return _DOUBTFUL.search(data) is not None


class CheckedSource:
    """A datum that may hold too long numbers or too many values: both are refused.

    One byte of a text counts as one of the number that follows, unless the reader calls
    ``end_content``. Events do not need the call: only counts, branches and keys follow texts in
    them, which are short.

    Args:
        data: the datum, perhaps with bytes behind it.
        reads_max: see ``Decoder``; None for no bound.
    """

    __slots__ = ("_data", "_reads_left", "_run", "position", "smallest")

    def __init__(self, data: bytes, reads_max: int | None = None) -> None:
        self._data = data
        self.position = 0
        self._reads_left = sys.maxsize if reads_max is None else reads_max
        self._run = 0  # bytes of the number that is being read
        self.smallest = 0  # how often the smallest number was read

    def read(self, size: int, /) -> bytes:
        """The next bytes; numbers are read byte by byte."""
        start = self.position
        end = start + size
        if size < 0 or end > len(self._data):
            raise EOFError
        self.position = end
        found = self._data[start:end]
        if size == 1:
            if self._run == _LAST_BYTE and found > _LAST_BYTE_MAX:
                raise MalformedEvent("datum: a number takes more than 64 bits")
            if found >= _CONTINUED:
                self._run += 1
                return found
            if self._run == _LAST_BYTE and self._data[start - _LAST_BYTE : start] == b"\xff" * 9:
                self.smallest += 1
        self._run = 0
        self._reads_left -= 1
        if self._reads_left < 0:
            raise MalformedEvent("datum holds more values than any event")
        return found

    def end_content(self) -> None:
        """Note that the last byte read was content and no part of a number."""
        self._run = 0


class Decoder:
    """Reads data of one type.

    Attributes:
        reads_max: numbers, texts and other scalars in a datum so that all values, lists and
            records included, are at most ``VALUES_MAX``.

    Raises:
        MalformedEvent: a list whose items may take no byte.
    """

    def __init__(self, node: AvroType) -> None:
        self.reads_max = int(VALUES_MAX / _density(node))
        schema = wire_schema(node)
        guard_unions(schema["fields"][0])
        self._schema = schema

    def read(self, source: Source) -> Any:
        """Read one datum.

        Returns:
            None, int, float, str, bytes, list or dict; a boolean as one byte.

        Raises:
            MalformedEvent: it is cut short, holds text that is not UTF-8, or see above.
        """
        before = getattr(source, "smallest", 0)
        try:
            datum = fastavro.schemaless_reader(cast("IO[bytes]", source), self._schema)
            value = cast("dict[str, Any]", datum)["value"]
        except (EOFError, IndexError):
            raise MalformedEvent("datum is cut short") from None
        except UnicodeDecodeError:
            raise MalformedEvent("datum: a string is not UTF-8") from None
        smallest = getattr(source, "smallest", 0) - before
        if smallest and smallest != count_smallest(value):
            raise MalformedEvent("datum holds more values than any event")
        return value


def encoded(schema: Any, value: Any) -> bytes:
    """A datum of a type.

    Args:
        schema: from ``wire_schema``.
        value: as fastavro takes it; values of unions as pairs with the name of their branch.

    Raises:
        OverflowError: an integer of more than 64 bits.
        UnicodeEncodeError: half a surrogate pair.
    """
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"value": value})
    return out.getvalue()


def wire_schema(node: AvroType) -> Any:
    """A type as fastavro takes it: a record with the field ``value``."""
    fields = [{"name": "value", "type": _Plain().schema(node)}]
    return fastavro.parse_schema({"type": "record", "name": "datum", "fields": fields})


def fixed_tag(size: int) -> str:
    """The name of a fixed in unions of ``wire_schema``."""
    return f"fixed{size}"


class _Plain:
    """Types without names of their own: those of one size are one, records are numbered."""

    def __init__(self) -> None:
        self._sizes: set[int] = set()
        self._records = 0

    def schema(self, node: AvroType) -> Any:
        """The type; the tree bounds the recursion."""
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
    """A union's branches. A negative number is none: fastavro would count it from the end."""

    def __len__(self) -> int:
        return 0  # added to negative numbers before they arrive

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


# ---------------------------------------------------------------- what data may take


def _reads(node: AvroType) -> int:
    """Scalars in the smallest datum, branches of unions and ends of lists included."""
    if node.kind == "record":
        return sum(_reads(item.type) for item in node.fields)
    if node.kind == "union":
        return 1 + min(_reads(branch) for branch in node.branches)
    return 0 if node.kind == "null" or (node.kind == "fixed" and not node.size) else 1


def _values(node: AvroType) -> int:
    """Values in the largest datum, each list taken for one."""
    if node.kind == "union":
        return max(_values(branch) for branch in node.branches)
    return 1 + sum(_values(item.type) for item in node.fields)


def _density(node: AvroType) -> float:
    """Values for each scalar that is read, in the list that has most; at least 1."""
    inner = [*node.branches, *(item.type for item in node.fields)]
    if node.items is None:
        return max((_density(part) for part in inner), default=1.0)
    key = int(node.kind == "map")
    reads = _reads(node.items) + key
    if not reads:
        raise MalformedEvent("schema: items of a list take no byte")
    return max(1.0, (_values(node.items) + key) / reads, _density(node.items))


def count_smallest(value: Any) -> int:
    """Return how many values are the smallest number of 64 bits."""
    if isinstance(value, dict):
        return sum(count_smallest(item) for item in value.values())
    if isinstance(value, list):
        return sum(count_smallest(item) for item in value)
    return int(value == _LONG_MIN and isinstance(value, int))
