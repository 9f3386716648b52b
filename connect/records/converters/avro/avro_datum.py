"""Single Avro data, read by fastavro within bounds.

Rules of this file:
- fastavro gets the types without names and logical types. ``avro_values`` converts what it reads.
- fastavro accepts numbers of more than 64 bits. A search over the bytes finds candidates; data
  with candidates are read through a source that checks each number.
- fastavro reads as many items without bytes as a message asks for. Such items are counted.
- fastavro counts negative union branches from the end. ``guard_unions`` refuses them.
- Bytes after the datum are refused: they were written with another schema.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any, Final, cast

import fastavro
from fastavro.read import LOGICAL_READERS

from connect.records.converters.avro.avro_schema import AvroType
from connect.records.converters.payload_errors import Malformed
from control_schemas.datum import (
    CheckedSource,
    count_smallest,
    guard_unions,
    may_hold_long_numbers,
)
from control_schemas.errors import MalformedEvent

EMPTY_ITEMS_MAX: Final = 100_000
_COUNTED: Final = "icefloe-counted"
_CHECKED: Final = "icefloe-checked"
_READING: Final = "icefloe-reading"


class _Reading:
    """What is counted while one datum is read."""

    __slots__ = ("empty_items", "source")

    def __init__(self) -> None:
        self.start(None)

    def start(self, source: CheckedSource | None) -> None:
        """Begin a datum."""
        self.source = source
        self.empty_items = EMPTY_ITEMS_MAX


class AvroDatumReader:
    """Reads data of one schema; one datum at a time.

    Args:
        source: the writer's schema.
    """

    def __init__(self, source: AvroType) -> None:
        self._type = source
        self._reading = _Reading()
        self._schema = _wire_schema(source, self._reading, is_checked=False)
        self._checked: Any = None  # built for the first datum that needs it

    def read(self, data: bytes, position: int) -> Any:
        """Read one datum that ends with the bytes.

        Args:
            data: the message.
            position: where the datum begins.

        Returns:
            Values as fastavro gives them, with these exceptions. A boolean is one byte, an enum its
            number, a map a list of ``key`` and ``value``. A value of a union of several types is a
            dictionary of the branch's number. An array item that takes no bytes is a dictionary of
            ``value``.

        Raises:
            Malformed: ``bad_avro``, ``bad_text`` or ``too_large``.
        """
        if position:
            data = data[position:]
        try:
            if may_hold_long_numbers(data):
                value, end = self._read_checked(data)
            else:
                plain = io.BytesIO(data)
                self._reading.start(None)
                value, end = fastavro.schemaless_reader(plain, self._schema), plain.tell()
        except (EOFError, IndexError):
            raise Malformed("the message ends within the datum") from None
        except UnicodeDecodeError:
            raise Malformed("a string is not UTF-8", "bad_text") from None
        except MalformedEvent as error:
            raise Malformed(str(error)) from None
        if end != len(data):
            raise Malformed("there are bytes after the datum: it was written with another schema")
        return cast("dict[str, Any]", value)["value"]

    def _read_checked(self, data: bytes) -> tuple[Any, int]:
        """Read a datum and check each number."""
        if self._checked is None:
            self._checked = _wire_schema(self._type, self._reading, is_checked=True)
        source = CheckedSource(data)
        self._reading.start(source)
        value = fastavro.schemaless_reader(cast("IO[bytes]", source), self._checked)
        if source.smallest and source.smallest != count_smallest(value):
            raise Malformed("a count or a length is the smallest number of 64 bits")
        return value, source.position


def _wire_schema(source: AvroType, reading: _Reading, *, is_checked: bool) -> Any:
    """Return a type as fastavro takes it: a record with the field ``value``."""
    value = _Wire(reading, is_checked=is_checked).schema(source)
    fields = [{"name": "value", "type": value}]
    schema = fastavro.parse_schema({"type": "record", "name": "datum", "fields": fields})
    guard_unions(cast("dict[str, Any]", schema))
    return schema


class _Wire:
    """Builds types with numbered names; each record is defined once."""

    def __init__(self, reading: _Reading, *, is_checked: bool) -> None:
        self._reading = reading
        self._is_checked = is_checked
        self._records: dict[int, str] = {}
        self._names = 0

    def schema(self, source: AvroType) -> Any:
        """Return the type; the parser of schemas bounds the recursion."""
        kind = source.kind
        if kind == "record":
            return self._record(source)
        if kind == "union":
            return self._union(source)
        if kind == "array" and source.items is not None:
            return {"type": "array", "items": self._item(source.items)}
        if kind == "map" and source.items is not None:
            entry = {"key": "string", "value": self.schema(source.items)}
            return {"type": "array", "items": self._fields(entry)}
        if kind in ("boolean", "fixed"):
            return self._fixed(1 if kind == "boolean" else source.size)
        if kind == "enum":
            return "int"
        if self._is_checked and kind == "bytes":
            return {"type": "bytes", "logicalType": _CHECKED, _READING: self._reading}
        return kind

    def _record(self, source: AvroType) -> Any:
        record_name = self._records.get(id(source))
        if record_name is not None:
            return record_name
        schema = self._fields({field.name: self.schema(field.type) for field in source.fields})
        self._records[id(source)] = schema["name"]
        return schema

    def _union(self, source: AvroType) -> Any:
        """A record around each branch names it, where there are several; it takes no bytes."""
        if is_nullable(source):
            return [self.schema(branch) for branch in source.branches]
        return [
            "null" if branch.kind == "null" else self._fields({str(i): self.schema(branch)})
            for i, branch in enumerate(source.branches)
        ]

    def _item(self, source: AvroType) -> Any:
        item = self.schema(source)
        if not takes_no_bytes(source):
            return item
        return {
            **self._fields({"value": item}),
            "logicalType": _COUNTED,
            _READING: self._reading,
        }

    def _fields(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        listed = [{"name": name, "type": kind} for name, kind in fields.items()]
        return {"type": "record", "name": self._name(), "fields": listed}

    def _fixed(self, size: int) -> dict[str, Any]:
        schema = {"type": "fixed", "name": self._name(), "size": size}
        if self._is_checked and size == 1:
            schema |= {"logicalType": _CHECKED, _READING: self._reading}
        return schema

    def _name(self) -> str:
        self._names += 1
        return f"type{self._names}"


def is_nullable(source: AvroType) -> bool:
    """Return whether a union has null and one more type."""
    return len(source.branches) == 2 and any(b.kind == "null" for b in source.branches)


def takes_no_bytes(source: AvroType) -> bool:
    """Return whether every datum of a type is empty."""
    if source.kind == "record":
        return all(takes_no_bytes(field.type) for field in source.fields)
    return source.kind == "null" or (source.kind == "fixed" and not source.size)


# ------------------------------------------------------------------ called by fastavro


def _count_empty(value: Any, schema: dict[str, Any], _: Any) -> Any:
    """Count an item that takes no bytes."""
    reading: _Reading = schema[_READING]
    reading.empty_items -= 1
    if reading.empty_items < 0:
        raise Malformed(f"more than {EMPTY_ITEMS_MAX} items without content", "too_large")
    return value


def _end_bytes(value: bytes, schema: dict[str, Any], _: Any) -> bytes:
    """Report that the last byte read was content and no part of a number."""
    schema[_READING].source.end_content()
    return value


LOGICAL_READERS[f"record-{_COUNTED}"] = _count_empty
LOGICAL_READERS[f"bytes-{_CHECKED}"] = _end_bytes
LOGICAL_READERS[f"fixed-{_CHECKED}"] = _end_bytes
