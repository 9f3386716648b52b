"""Blocks of messages that name their schema into columns, schema by schema.

Rules of this file:
- Rows are grouped by their schema, and each group is scanned at once. Rows without a schema, of a
  schema without a column form, or of groups that are too small go to the record path.
- The record path uses the same converter, so both read the same schemas.
- A null with a default in its schema means the default. Rows with such a null go to the record
  path.
- With schema evolution, the pipeline learns which tables a schema asks to change. Rows for these go
  to the record path, which requests the change.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import ConnectSchema, SinkRecord
from connect.records.converters.avro.avro_converter import AvroConverter
from connect.records.converters.converter import Converter, Role
from connect.records.converters.json.json_schema_converter import JsonSchemaConverter
from connect.records.converters.protobuf.protobuf_converter import ProtobufConverter
from connect.records.converters.registry.registered_schemas import REFUSALS, RegisteredConverter
from connect.records.converters.registry.wire_format import (
    GUID_BYTES,
    GUID_MAGIC,
    HEADERS,
    ID_BYTES,
    Framed,
)
from connect.records.tables.schema_evolution import changes
from worker.batch.blocks import Block
from worker.decode.avro_columns import avro_scanner
from worker.decode.binary_cursor import BinaryCursor, Mask
from worker.decode.byte_prefilters import rows_at_once
from worker.decode.column_builders import RowValues, misencoded, without_ends
from worker.decode.protobuf_columns import protobuf_scanner
from worker.decode.typed_json import TypedJson
from worker.write.table_writers import AlikeTables

Rows = npt.NDArray[np.int64]
Scanner = Callable[[BinaryCursor], RowValues]
Scan = Callable[[pa.Array, int], Iterator[tuple[pa.Table, Rows]]]
"""Gets messages and where their data begin; the fields, and positions of the rows decoded."""

_GROUPS_MAX: Final = 64
_ROWS_MIN: Final = 32
_SCANNERS_KEPT: Final = 1000


@dataclass(frozen=True, slots=True)
class DecodedSchemaRows:
    """Rows of one schema.

    Attributes:
        table: their fields.
        rows: their positions in the values given.
        unfit: tables that the schema asks to change.
        name: the schema's.
    """

    table: pa.Table
    rows: Rows
    unfit: frozenset[str]
    name: str | None


@dataclass(frozen=True, slots=True)
class _Form:
    """The scanner of data of one schema; None where there is no scanner."""

    compiled: Any
    schema: ConnectSchema
    scan: Scan | None
    unfit: frozenset[str]


class RegisteredForm:
    """Decodes data of converters with schemas.

    Args:
        converter: the record path's.
        role: which side of the record.
        config: the connector's.
        tables: all tables, to find those that a schema asks to change.
    """

    def __init__(
        self,
        converter: RegisteredConverter[Any],
        role: Role,
        config: ConnectorConfig,
        tables: Sequence[AlikeTables] = (),
    ) -> None:
        self._converter = converter
        self._role: Role = role
        self._config = config
        self._tables = tables
        self._forms: OrderedDict[Any, _Form | None] = OrderedDict()

    def decode(self, values: pa.Array, block: Block, places: Rows) -> Iterator[DecodedSchemaRows]:
        """Decode the values that have a column form.

        Args:
            values: binary, no nulls, one chunk.
            block: has the headers.
            places: positions of the values in the block.

        Raises:
            RetriableError, ConfigError: the registry does not answer, or refuses us.
        """
        for place, rows in self._groups(values, block, places):
            form = self._form(place.schema, place.indexes)
            if form is None or form.scan is None:
                continue
            part = values if len(rows) == len(values) else values.take(pa.array(rows))
            for table, good in form.scan(part, place.start):
                yield DecodedSchemaRows(table, rows[good], form.unfit, form.schema.name)

    def refused(self, values: pa.Array, block: Block, places: Rows) -> Mask:
        """Return rows that may be refused; for sides whose value is not asked for."""
        ambiguous = np.ones(len(values), np.bool_)
        for decoded in self.decode(values, block, places):
            ambiguous[decoded.rows] = False
        return ambiguous

    # -------------------------------------------------------------- groups

    def _groups(
        self, values: pa.Array, block: Block, places: Rows
    ) -> Iterator[tuple[Framed, Rows]]:
        """Return rows grouped by the bytes that name their schema."""
        count = len(values)
        if not count:
            return
        if self._converter.registry is None:
            yield Framed(0, 0), np.arange(count)
            return
        reported = self._headers(block, places)
        heads = _heads(values, self._converter.has_indexes)
        if reported is not None:
            heads = pc.if_else(reported.is_valid(), pa.scalar(b"\xff"), heads)
        encoded = heads.dictionary_encode()
        yield from self._framed(encoded, own=True)
        if reported is not None:
            yield from self._framed(reported.dictionary_encode(), own=False)

    def _framed(self, encoded: pa.Array, *, own: bool) -> Iterator[tuple[Framed, Rows]]:
        """Return groups of rows with equal first bytes (own), or with equal headers."""
        numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        heads = encoded.dictionary.to_pylist()
        counts = np.bincount(numbers[numbers >= 0], minlength=len(heads))
        for code in np.argsort(-counts)[:_GROUPS_MAX].tolist():
            if counts[code] < min(_ROWS_MIN, len(numbers)):
                return
            head = heads[code]
            try:
                place = (
                    self._converter.place((), head)
                    if own
                    else self._converter.place(((HEADERS[self._role], head),), b"")
                )
            except REFUSALS:
                continue
            yield place, np.flatnonzero(numbers == code)

    def _headers(self, block: Block, places: Rows) -> pa.Array | None:
        """Return the schema that each row's header names; None where no row has one."""
        column = block.column("headers")
        if column is None or column.null_count == len(column):
            return None
        lists = column.take(pa.array(places))
        entries = lists.flatten()
        is_ours = pc.and_(
            pc.equal(pc.struct_field(entries, "key"), HEADERS[self._role]),
            pc.greater(pc.fill_null(pc.binary_length(pc.struct_field(entries, "value")), 0), 0),
        )
        if not pc.any(is_ours).as_py():
            return None
        parents = pc.list_parent_indices(lists).filter(is_ours).to_numpy()
        reported = pc.struct_field(entries, "value").filter(is_ours)
        index = np.full(len(places), -1, np.int64)
        index[parents] = np.arange(len(parents))  # the last one counts
        return reported.take(pa.array(index, mask=index < 0))

    # -------------------------------------------------------------- schemas

    def _form(self, schema: int | str, indexes: tuple[int, ...]) -> _Form | None:
        key = (schema, indexes)
        try:
            compiled = self._converter.compiled("", schema)
        except REFUSALS:
            return None
        cached = self._forms.get(key)
        if cached is not None and cached.compiled is compiled:
            self._forms.move_to_end(key)
            return cached
        form = self._forms[key] = self._build(compiled, indexes)
        if len(self._forms) > _SCANNERS_KEPT:
            self._forms.popitem(last=False)
        return form

    def _build(self, compiled: Any, indexes: tuple[int, ...]) -> _Form | None:
        try:
            schema, scan = _SCANNERS[self._converter.kind](compiled, indexes)
        except REFUSALS:
            return None
        if schema.type != "struct":
            return _Form(compiled, schema, None, frozenset())
        return _Form(compiled, schema, scan, self._unfit(schema))

    def _unfit(self, schema: ConnectSchema) -> frozenset[str]:
        return unfit_tables(schema, self._config, self._tables)


def unfit_tables(
    schema: ConnectSchema, config: ConnectorConfig, tables: Iterable[AlikeTables]
) -> frozenset[str]:
    """Return tables that records of a schema ask to change; none without schema evolution."""
    if not config.evolve_schema_enabled:
        return frozenset()
    record = SinkRecord("", 0, 0, None, value_schema=schema)
    return frozenset(
        name for alike in tables if _asks(alike, record, config) for name in alike.names
    )


def _asks(alike: AlikeTables, record: SinkRecord, config: ConnectorConfig) -> bool:
    try:
        return bool(changes(alike.sample.schema, record, config))
    except RecordError:
        return True


def _scanned(scan: Scanner, values: pa.Array, start: int) -> Iterator[tuple[pa.Table, Rows]]:
    """Return rows that were scanned to their end, and their positions."""
    tables: list[pa.Table] = []
    row_numbers: list[Rows] = []
    step = rows_at_once(values)
    for first in range(0, len(values), step):
        array, good = _scanned_part(scan, BinaryCursor.over(values.slice(first, step), start))
        if len(good) and pa.types.is_struct(array.type):
            tables.append(_table(array))
            row_numbers.append(good + first)
    if tables:
        yield pa.concat_tables(tables).combine_chunks(), np.concatenate(row_numbers)


def _scanned_part(scan: Scanner, cursor: BinaryCursor) -> tuple[pa.Array, Rows]:
    gathered = scan(cursor)
    good = np.flatnonzero((cursor.at == cursor.end) & ~cursor.bad)
    if len(good) < len(cursor):
        gathered = gathered.picked(good)
    array = gathered.array(cursor.data)
    bad = misencoded(array)
    if bad is not None:
        good, array = good[~bad], array.filter(pa.array(~bad))
    return array, good


def _avro(compiled: Any, _: tuple[int, ...]) -> tuple[ConnectSchema, Scan]:
    schema: ConnectSchema = compiled.schema
    scan = partial(_scanned, avro_scanner(compiled))
    if not _has_default(schema):
        return schema, scan

    def without_defaults(values: pa.Array, start: int) -> Iterator[tuple[pa.Table, Rows]]:
        for table, rows in scan(values, start):
            keep = ~_with_default(table.to_struct_array().combine_chunks(), schema)
            yield (table, rows) if keep.all() else (table.filter(pa.array(keep)), rows[keep])

    return schema, without_defaults


def _has_default(schema: ConnectSchema) -> bool:
    """Return whether a null at any depth means a default."""
    inner = (*(field for _, field in schema.fields), schema.key_schema, schema.value_schema)
    return (schema.optional and schema.default is not None) or any(
        _has_default(each) for each in inner if each is not None
    )


def _with_default(column: pa.Array, schema: ConnectSchema) -> Mask:
    """Return rows in which a null means a default, or may mean one."""
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    if schema.type != "struct" or not pa.types.is_struct(column.type):
        inner = [each for each in (schema.key_schema, schema.value_schema) if each is not None]
        doubt = valid & any(map(_has_default, inner))
        return doubt | ~valid if schema.optional and schema.default is not None else doubt
    doubt = np.zeros(len(column), np.bool_)
    for name, field in schema.fields:
        index = column.type.get_field_index(name)
        if index >= 0 and _has_default(field):
            doubt |= valid & _with_default(pc.struct_field(column, [index]), field)
    return doubt


def _protobuf(compiled: Any, indexes: tuple[int, ...]) -> tuple[ConnectSchema, Scan]:
    reader = compiled.reader(indexes)
    return reader.schema, partial(_scanned, protobuf_scanner(reader))


def _json(compiled: Any, _: tuple[int, ...]) -> tuple[ConnectSchema, Scan]:
    typed = TypedJson(compiled.schema)

    def scan(values: pa.Array, start: int) -> Iterator[tuple[pa.Table, Rows]]:
        if start:
            values = without_ends(values, np.ones(len(values), np.bool_), start, 0)
        return typed.decode(values)

    return compiled.schema, scan


_SCANNERS: Final[Mapping[str, Callable[[Any, tuple[int, ...]], tuple[ConnectSchema, Scan]]]] = {
    "AVRO": _avro,
    "PROTOBUF": _protobuf,
    "JSON": _json,
}


def _heads(values: pa.Array, has_indexes: bool) -> pa.Array:
    """Return the first bytes of each value, as many as name its schema."""
    short = pc.binary_slice(values, 0, ID_BYTES)
    heads = _with_indexes(values, ID_BYTES) if has_indexes else short
    is_long = pc.starts_with(short, bytes([GUID_MAGIC]))
    if pc.any(is_long).as_py():
        long = pc.binary_slice(values, 0, GUID_BYTES)
        heads = pc.if_else(
            is_long, _with_indexes(values, GUID_BYTES) if has_indexes else long, heads
        )
    return heads


def _with_indexes(values: pa.Array, size: int) -> pa.Array:
    """Return heads with the place of a message type of one or two levels, each below 64."""
    heads = pc.binary_slice(values, 0, size + 1)
    counts = pc.binary_slice(values, size, size + 1)
    for count, encoded in ((1, b"\x02"), (2, b"\x04")):
        is_such = pc.equal(counts, encoded)
        if pc.any(is_such).as_py():
            heads = pc.if_else(is_such, pc.binary_slice(values, 0, size + 1 + count), heads)
    return heads


def _table(array: pa.Array) -> pa.Table:
    names = [field.name for field in array.type]
    return pa.Table.from_arrays(array.flatten(), names=names)


def registered_form(
    converter: Converter, role: Role, config: ConnectorConfig, tables: Iterable[AlikeTables] = ()
) -> RegisteredForm | None:
    """Return the form of a converter; None when it has none."""
    kinds = (AvroConverter, ProtobufConverter, JsonSchemaConverter)
    if isinstance(converter, kinds) and not converter.is_resolving:
        return RegisteredForm(converter, role, config, tuple(tables))
    return None
