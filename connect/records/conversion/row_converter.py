"""Conversion of records to table rows, with one converter per column built once per schema.

Rules of this file:
- The table's schema decides. A field that the table lacks is ignored, because schema evolution ran
  before. A column that the record lacks has its write default, or is null. Null in a required
  column is an error.
- Names match exactly, or case-insensitively if configured. If the table has a name mapping
  (``schema.name-mapping.default``), only the mapping applies. Two fields for one column are an
  error.
- A value of a row is valid input of ``pyarrow.array([value], type)``, with the column's Arrow type
  of ``connect.model.table_types.arrow_schema``. Temporal values are integers, UUIDs 16 bytes,
  structs dicts, lists lists, and maps lists of pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect.model.records import ConnectSchema, Struct
from connect.model.table_types import VariantType
from connect.records.conversion.binary import fixed_converter, to_binary, to_uuid
from connect.records.conversion.conversion_failure import (
    TYPE_CONFLICTS,
    Unconvertible,
    kind_of,
    wrong_type,
)
from connect.records.conversion.named_values import (
    FORMS,
    declared_unit,
    has_meaning,
    of_items,
    read_for,
)
from connect.records.conversion.numbers import (
    decimal_converter,
    to_boolean,
    to_double,
    to_float,
    to_int,
    to_long,
)
from connect.records.conversion.temporal import (
    TimestampUnit,
    TruncationCounts,
    nano_timestamp_converter,
    time_converter,
    timestamp_converter,
    to_date,
)
from connect.records.conversion.text import java_text, to_string
from connect.records.conversion.variant import to_variant

Converter = Callable[[Any], Any]
RowFunction = Callable[..., dict[str, Any]]
"""Converts a struct, and takes ``Conflicts``."""
Names = Mapping[int, tuple[str, ...]]
NAME_MAPPING_PROPERTY: Final = "schema.name-mapping.default"

_PLAIN: Final[Mapping[type[IcebergType], Converter]] = {
    BooleanType: to_boolean,
    IntegerType: to_int,
    LongType: to_long,
    FloatType: to_float,
    DoubleType: to_double,
    StringType: to_string,
    BinaryType: to_binary,
    UUIDType: to_uuid,
    DateType: to_date,
    VariantType: to_variant,
}


@dataclass(frozen=True, slots=True)
class ConversionOptions:
    """Options of the conversion from records to rows.

    Attributes:
        timestamp_unit: unit of plain numbers in timestamp and time columns.
        case_insensitive: whether names match case-insensitively.
        name_mapping: the table's ``schema.name-mapping.default`` (JSON), or None.
        losses: counts truncated digits.
        declared: schema of the values, if its name or unit decides their conversion.
    """

    timestamp_unit: TimestampUnit = "ms"
    case_insensitive: bool = False
    name_mapping: str | None = None
    losses: TruncationCounts = field(default_factory=TruncationCounts)
    declared: ConnectSchema | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A value that its top-level column does not take.

    Attributes:
        value: as the record has it.
        schema: of the record's field; None in a record without schema.
        refusal: of the conversion.
    """

    value: Any
    schema: ConnectSchema | None
    refusal: Unconvertible


Conflicts = dict[str, Conflict]
"""Conflicts of a record by column."""


class RowConverter:
    """Converts record values to rows of one table schema.

    Args:
        schema: the table's schema.
        options: conversion options.
    """

    def __init__(self, schema: Schema, options: ConversionOptions) -> None:
        names = mapped_names(options.name_mapping) if options.name_mapping else None
        self._convert: RowFunction = _struct_converter(schema.as_struct(), options, names)

    def row(self, value: Any, conflicts: Conflicts | None = None) -> dict[str, Any]:
        """Return the value of each top-level column by name.

        Args:
            value: a dict or a Struct.
            conflicts: takes the values whose type their column does not take; the row has null in
                their place. None: they are errors.

        Raises:
            Unconvertible: a value cannot be converted; the error contains the column's path.
        """
        return self._convert(value, conflicts)


def mapped_names(mapping: str) -> Names:
    """Return the names by field id, at all depths, of a ``schema.name-mapping.default`` (JSON)."""
    names: dict[int, tuple[str, ...]] = {}

    def collect(fields: Iterable[MappedField]) -> None:
        for mapped in fields:
            if mapped.field_id is not None and mapped.names:
                names[mapped.field_id] = tuple(mapped.names)
            collect(mapped.fields)

    collect(parse_mapping_from_json(mapping))
    return names


def column_converter(
    column: IcebergType, options: ConversionOptions, names: Names | None = None
) -> Converter:
    """Build the converter of non-null values of one type.

    Args:
        column: the column's type.
        options: conversion options.
        names: names of record fields by field id; None matches by the table's names.
    """
    convert = _column_converter(column, options, names)
    if options.declared is None or (read := read_for(options.declared, column)) is None:
        return convert
    # a custom transformation may have left another value than its schema says
    forms = FORMS[options.declared.type]
    return lambda value: convert(read(value) if type(value) in forms else value)


def _column_converter(
    column: IcebergType, options: ConversionOptions, names: Names | None
) -> Converter:
    plain = _PLAIN.get(type(column))
    if plain is not None:
        return plain
    unit = declared_unit(options.declared) or options.timestamp_unit
    if isinstance(column, DecimalType):
        return decimal_converter(column.precision, column.scale)
    if isinstance(column, TimestampType | TimestamptzType):
        return timestamp_converter(
            zoned=isinstance(column, TimestamptzType),
            unit=unit,
            losses=options.losses,
        )
    if isinstance(column, TimestampNanoType | TimestamptzNanoType):
        return nano_timestamp_converter(
            zoned=isinstance(column, TimestamptzNanoType),
            unit=unit,
        )
    if isinstance(column, TimeType):
        return time_converter(options.losses, unit)
    if isinstance(column, FixedType):
        return fixed_converter(len(column))
    if isinstance(column, StructType):
        return _struct_converter(column, replace(options, declared=None), names)
    if isinstance(column, ListType):
        return _list_converter(column, options, names)
    if isinstance(column, MapType):
        return _map_converter(column, options, names)
    return _unsupported(column)


def _unsupported(column: IcebergType) -> Converter:
    def refuse(_: Any) -> Any:
        raise Unconvertible("unsupported_type", f"columns of type {column} are not supported")

    return refuse


def _list_converter(column: ListType, options: ConversionOptions, names: Names | None) -> Converter:
    item = column_converter(column.element_type, options, names)
    required = column.element_required

    def to_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise wrong_type(value, "list")
        if required and None in value:
            raise Unconvertible(
                "required_null", "a list with required elements contains null"
            ).inside("element")
        try:
            return [None if v is None else item(v) for v in value]
        except Unconvertible as refusal:
            raise refusal.inside("element") from None

    return to_list


def _map_converter(column: MapType, options: ConversionOptions, names: Names | None) -> Converter:
    to_key = column_converter(column.key_type, replace(options, declared=None), names)
    to_value = column_converter(column.value_type, options, names)
    required = column.value_required
    hashable = not isinstance(column.key_type, StructType | ListType | MapType)

    def entry(key: Any, value: Any) -> tuple[Any, Any]:
        if key is None:
            raise Unconvertible("required_null", "a map has a null key")
        try:
            converted = to_key(key)
        except Unconvertible as refusal:
            raise refusal.inside("key") from None
        if value is None and not required:
            return converted, None
        if value is None:
            raise Unconvertible("required_null", "a map with required values contains null").inside(
                "value"
            )
        try:
            return converted, to_value(value)
        except Unconvertible as refusal:
            raise refusal.inside("value") from None

    def to_map(value: Any) -> list[tuple[Any, Any]]:
        if type(value) is not dict:
            raise wrong_type(value, "map")
        pairs = [entry(k, v) for k, v in value.items()]
        if hashable and len({k for k, _ in pairs}) != len(pairs):
            raise Unconvertible("ambiguous_name", "two keys of the map convert to the same key")
        return pairs

    return to_map


@dataclass(slots=True)
class _Column:
    name: str
    required: bool
    convert: Converter
    sources: tuple[str, ...]
    kind: IcebergType
    default: Any


Step = tuple[str, bool, Converter, Any]


def _struct_converter(
    struct: StructType, options: ConversionOptions, names: Names | None
) -> RowFunction:
    columns = [_column(f, options, names) for f in struct.fields]
    fold = names is None and options.case_insensitive
    exact = names is None and not fold
    steps = [(c.name, c.required, c.convert, c.default) for c in columns]
    lookup = {(source.lower() if fold else source): c.name for c in columns for source in c.sources}
    plans = _StructPlans(columns, options)

    def to_row(value: Any, conflicts: Conflicts | None = None) -> dict[str, Any]:
        if type(value) is dict:
            fields: Mapping[Any, Any] = value
            chosen = steps
            is_plain = exact and all(type(key) is str for key in fields)
        elif type(value) is Struct:
            chosen, fields = plans.apply(value, steps)
            is_plain = exact
        else:
            raise wrong_type(value, "struct")
        if not is_plain:
            fields = _by_column(fields, lookup, fold=fold)
        row: dict[str, Any] = {}
        for name, required, convert, default in chosen:
            item = fields.get(name)
            if item is None:
                if default is not None and name not in fields:
                    row[name] = default
                    continue
                if required:
                    raise _missing(name)
                row[name] = None
                continue
            try:
                row[name] = convert(item)
            except Unconvertible as refusal:
                inner = _schema_of(name, value, lookup, fold=fold)
                _note(Conflict(item, inner, refusal.inside(name)), conflicts)
                row[name] = None
        return row

    return to_row


def _schema_of(
    column: str, value: Any, lookup: Mapping[str, str], *, fold: bool
) -> ConnectSchema | None:
    if type(value) is not Struct:
        return None
    names = ((name.lower() if fold else name, inner) for name, inner in value.schema.fields)
    return next((inner for name, inner in names if lookup.get(name) == column), None)


def _note(conflict: Conflict, conflicts: Conflicts | None) -> None:
    """Keep a conflict, whose column is null, or raise its refusal."""
    refusal = conflict.refusal
    if conflicts is None or refusal.reason not in TYPE_CONFLICTS:
        raise refusal from None
    conflicts[refusal.path[0]] = conflict


def _missing(name: str) -> Unconvertible:
    return Unconvertible(
        "required_null", "the value of a required column is null or missing"
    ).inside(name)


def _column(column: NestedField, options: ConversionOptions, names: Names | None) -> _Column:
    # a column that the mapping does not list keeps its own name, as in Iceberg's readers
    own = (column.name,)
    return _Column(
        name=column.name,
        required=column.required,
        convert=column_converter(column.field_type, options, names),
        sources=names.get(column.field_id, own) if names is not None else own,
        kind=column.field_type,
        default=write_default(column),
    )


def write_default(column: NestedField) -> Any:
    """Return what a row has where its record lacks a column; None is null."""
    if column.write_default is None:
        return None
    return column_converter(column.field_type, ConversionOptions())(column.write_default)


def _by_column(
    fields: Mapping[Any, Any], lookup: Mapping[str, str], *, fold: bool
) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for key, value in fields.items():
        if key is None:
            raise Unconvertible("wrong_type", f"a field name is a {kind_of(key)}, not a string")
        name = key if type(key) is str else java_text(key)
        column = lookup.get(name.lower() if fold else name)
        if column is None:
            continue
        if column in columns:
            raise Unconvertible(
                "ambiguous_name", "two fields of the record match the column"
            ).inside(column)
        columns[column] = value
    return columns


class _StructPlans:
    """Conversion steps by struct schema, which defines defaults for nulls and meanings."""

    _KEPT = 64

    def __init__(self, columns: list[_Column], options: ConversionOptions) -> None:
        self._columns = columns
        self._options = options
        self._plans: dict[int, tuple[ConnectSchema, list[Step] | None, dict[str, Any]]] = {}

    def apply(self, value: Struct, usual: list[Step]) -> tuple[list[Step], Mapping[str, Any]]:
        """Return the conversion steps for a struct, and its fields with defaults for nulls."""
        plan = self._plans.get(id(value.schema))
        if plan is None or plan[0] is not value.schema:
            if len(self._plans) >= self._KEPT:
                self._plans.clear()
            plan = (value.schema, self._steps(value.schema), _defaults(value.schema))
            self._plans[id(value.schema)] = plan
        fields = value.values
        if plan[2]:
            fields = {**plan[2], **{k: v for k, v in fields.items() if v is not None}}
        return plan[1] or usual, fields

    def _steps(self, schema: ConnectSchema) -> list[Step] | None:
        declared = {n: of_items(s) for n, s in schema.fields if has_meaning(of_items(s))}
        if not declared:
            return None
        return [
            (c.name, c.required, self._converter(c, declared), c.default) for c in self._columns
        ]

    def _converter(
        self, column: _Column, declared: Mapping[str, ConnectSchema | None]
    ) -> Converter:
        schema = next((declared[s] for s in column.sources if s in declared), None)
        if schema is None:
            return column.convert
        return column_converter(column.kind, replace(self._options, declared=schema))


def _defaults(schema: ConnectSchema) -> dict[str, Any]:
    nulls = ((name, inner.null_value) for name, inner in schema.fields)
    return {name: value for name, value in nulls if value is not None}
