"""Schema changes that a record requires.

Rules of this file:
- A record without Connect schema only adds columns, with types inferred from its values. If the
  record has a schema, the schema defines the changes. Lists and maps are checked item by item.
- A required column becomes optional if the field is optional in the record's schema, or missing.
  A field that is missing in a record without schema proves nothing. Key columns stay required, and
  a missing field of a column with a write default is no null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from decimal import Decimal
from functools import partial
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.conversion.numbers import DECIMAL_PRECISION_MAX
from connect.records.conversion.row_converter import Names, mapped_names
from connect.records.conversion.text import java_text
from connect.records.row_operations import field_names
from connect.records.tables.folder_columns import folder_column_type
from connect.records.tables.schema_changes import (
    Path,
    SchemaChanges,
    check_count,
    common_type,
    fitting,
    full_names,
)
from connect.records.tables.table_creation import check_type
from connect.records.tables.type_inference import column_type, infer_type

Check = Callable[[Any], bool]
_KEPT: Final = 64


def changes(
    schema: Schema,
    record: SinkRecord,
    config: ConnectorConfig,
    name_mapping: str | None = None,
    partition_names: Collection[str] = (),
    *,
    table_name: str = "",
) -> SchemaChanges:
    """Return the schema changes that a record requires; empty if the record fits the table.

    Args:
        schema: the table's current schema.
        record: a record that is not a tombstone.
        config: the connector's configuration.
        name_mapping: the table property ``schema.name-mapping.default``.
        partition_names: of the table's partition fields. Java loads no table whose partition field
            has the name of a column that is not its source.
        table_name: decides about the configured key columns.

    Raises:
        RecordError: the changes are not possible: a name is invalid or ambiguous, or there are
            more new columns than ``iceberg.tables.max-new-columns``.
    """
    names = mapped_names(name_mapping) if name_mapping else None
    finder = _Finder(schema, config, names, _kept_names(schema, record, config, table_name))
    try:
        finder.struct((), schema.as_struct(), record.value, record.value_schema)
    except RecursionError:
        raise RecordError("the value is nested too deeply for a column", code="too_deep") from None
    schema_changes = SchemaChanges(finder.adds, finder.retypes, tuple(finder.optionals))
    check_added(schema, schema_changes, config, partition_names)
    return schema_changes


def check_added(
    schema: Schema, added: SchemaChanges, config: ConnectorConfig, partition_names: Collection[str]
) -> None:
    """Check that a table can have new columns; args and errors as ``changes``."""
    if not added.adds:
        return
    check_count(added, config)
    if len(fitting(schema, added.adds)) < len(added.adds):
        raise RecordError(
            "the name of a new field equals the full name of another column",
            code="bad_column_name",
        )
    for path, kind in added.adds.items():
        for name in full_names(".".join(path), kind):
            if name in partition_names:
                raise RecordError(
                    f"the table cannot have a column {name!r}: a partition field has this name",
                    code="partition_spec",
                )


class FittingSchemas:
    """Decides once per pair of schemas that records ask for no change of their table.

    A schema that asks for none leaves little to check in a record: digits of decimals, and structs
    with another schema than that of their field.

    Args:
        config: the connector's configuration.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._config = config
        self._known: dict[tuple[Any, ...], tuple[Schema, ConnectSchema, Check | None]] = {}

    def fits(
        self, schema: Schema, record: SinkRecord, name_mapping: str | None, table_name: str
    ) -> bool:
        """Return whether a record needs no change; if False, ``changes`` decides.

        Args:
            schema: the table's current schema.
            record: not a tombstone.
            name_mapping: as for ``changes``.
            table_name: as for ``changes``.
        """
        asked = record.value_schema
        if asked is None:
            return False
        key = (id(schema), id(asked), name_mapping, table_name)
        known = self._known.get(key)
        if known is not None and known[0] is schema and known[1] is asked:
            check = known[2]
            if check is _unchecked:  # the schema came again: it is worth a check
                check = self._check(schema, asked, name_mapping, table_name)
                self._known[key] = (schema, asked, check)
            return check is not None and check(record.value)
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[key] = (schema, asked, _unchecked)
        return False

    def _check(
        self, schema: Schema, asked: ConnectSchema, name_mapping: str | None, table_name: str
    ) -> Check | None:
        """Return what is left to check in a record; None if the schema asks for changes."""
        record = SinkRecord("", 0, 0, None, value_schema=asked)
        try:
            if changes(schema, record, self._config, name_mapping, table_name=table_name):
                return None
        except RecordError:
            return None
        names = mapped_names(name_mapping) if name_mapping else None
        return _Finder(schema, self._config, names, ()).check(schema.as_struct(), asked)


def _unchecked(value: Any) -> bool:
    """Stand for a check that is not made yet."""
    del value
    return False


def partition_names(table: Table) -> frozenset[str]:
    """Return the names of the fields of all partition specs of a table."""
    return frozenset(field.name for spec in table.specs().values() for field in spec.fields)


def _kept_names(
    schema: Schema, record: SinkRecord, config: ConnectorConfig, table: str
) -> Collection[str]:
    """Return the columns that stay required even if a record's schema lacks them."""
    names = config.table(table).id_columns
    if not names and not schema.identifier_field_ids and config.is_row_level:
        names = field_names(record.key)
    return names


class _Finder:
    """Compares a record with the schema of its table."""

    def __init__(
        self,
        schema: Schema,
        config: ConnectorConfig,
        names: Names | None,
        kept: Collection[str],
    ) -> None:
        self._kept = kept
        self._identifiers = [f"{schema.find_column_name(i)}." for i in schema.identifier_field_ids]
        self._config = config
        self._fold = config.schema_case_insensitive and names is None
        self._names = names
        self._fields: dict[int, dict[str, NestedField]] = {}
        self.adds: dict[Path, IcebergType] = {}
        self.retypes: dict[Path, IcebergType] = {}
        self.optionals: dict[Path, None] = {}

    def struct(
        self, path: Path, column: StructType, value: Any, schema: ConnectSchema | None
    ) -> None:
        """Check a record or struct. The conversion rejects values of other types."""
        if type(value) is Struct:
            schema = value.schema
        if schema is not None and schema.type == "struct":
            self._typed(path, column, value, schema)
        elif type(value) is dict:
            fields = self._known(column)
            for key, item in value.items():
                name = key if type(key) is str else java_text(key)
                field = fields.get(self._key(name))
                if field is not None:
                    self._nested((*path, field.name), field.field_type, item, None)
                elif item is not None and (kind := infer_type(item)) is not None:
                    self._add(path, name, kind)

    def _typed(self, path: Path, column: StructType, value: Any, schema: ConnectSchema) -> None:
        fields = self._known(column)
        values = value.values if type(value) is Struct else {}
        lacked = {f.name for f in column.fields if f.required and f.write_default is None}
        for name, inner in schema.fields:
            field = fields.get(self._key(name))
            if field is None:
                self._add(path, name, column_type(inner, self._config))
            else:
                lacked.discard(field.name)
                self._existing((*path, field.name), field, values.get(name), inner)
        for name in sorted(lacked):
            if path or name not in self._kept:
                self._relax((*path, name))

    def _key(self, name: str) -> str:
        return name.lower() if self._fold else name

    def _known(self, column: StructType) -> dict[str, NestedField]:
        by_name = self._fields.get(id(column))
        if by_name is None:
            by_name = {}
            for field in column.fields:
                own = (field.name,)
                for name in self._names.get(field.field_id, own) if self._names else own:
                    by_name[self._key(name)] = field
            self._fields[id(column)] = by_name
        return by_name

    def _add(self, parent: Path, name: str, kind: IcebergType) -> None:
        path = (*parent, name)
        if len(self.adds) > self._config.max_new_columns:  # the remaining fields do not matter
            check_count(SchemaChanges(self.adds, {}, ()), self._config)
        if not name:
            raise RecordError("a new field has an empty name", code="bad_column_name")
        check_type(kind, case_insensitive=self._fold, level=len(path))
        if self._fold and path not in self.adds:
            folded = name.lower()
            if any(p[:-1] == parent and p[-1].lower() == folded for p in self.adds):
                raise RecordError("two new fields have the same name", code="ambiguous_name")
        if not self._config.is_iceberg:
            kind = folder_column_type(name, kind)
        before = self.adds.get(path)
        self.adds[path] = kind if before is None else common_type(before, kind)

    def _existing(self, path: Path, field: NestedField, value: Any, schema: ConnectSchema) -> None:
        if (
            not self._config.is_iceberg
        ):  # columns are added only; the conversion rejects what is wider
            self._nested(path, field.field_type, value, schema)
            return
        if field.required and schema.optional:
            self._relax(path)
        wider = _wider(field.field_type, schema, value)
        if wider is not None:
            before = self.retypes.get(path)
            self.retypes[path] = wider if before is None else common_type(before, wider)
        self._nested(path, field.field_type, value, schema)

    def _relax(self, path: Path) -> None:
        """Make a column of an Iceberg table optional. No identifier field, nor its parent, is."""
        full_name = ".".join(path) + "."
        if self._config.is_iceberg and not any(
            name.startswith(full_name) for name in self._identifiers
        ):
            self.optionals[path] = None

    def _nested(
        self, path: Path, kind: IcebergType, value: Any, schema: ConnectSchema | None
    ) -> None:
        if isinstance(kind, StructType):
            self.struct(path, kind, value, schema)
        elif isinstance(kind, ListType) and type(value) is not dict:
            for item in _items(value, schema):
                self._nested((*path, "element"), kind.element_type, item, _inner(schema, "array"))
        elif isinstance(kind, MapType) and type(value) is not list:
            for item in _items(value, schema):
                self._nested((*path, "value"), kind.value_type, item, _inner(schema, "map"))

    # -------------------------------------------------------------- of a schema without changes

    def check(self, kind: IcebergType, schema: ConnectSchema) -> Check | None:
        """Return what decides whether a value of the schema needs no change; None if each does."""
        expected = {StructType: "struct", ListType: "array", MapType: "map"}.get(type(kind))
        if expected is None:
            return None
        if schema.type != expected:
            return lambda value: value is None
        if isinstance(kind, StructType):
            return self._struct_check(kind, schema)
        inner_kind = kind.element_type if isinstance(kind, ListType) else _value_type(kind)
        assert schema.value_schema is not None
        inner = self.check(inner_kind, schema.value_schema)
        if inner is None:
            return None
        return lambda value: all(map(inner, _items(value, None)))

    def _struct_check(self, column: StructType, schema: ConnectSchema) -> Check:
        fields = self._known(column)
        checks: list[tuple[str, Check]] = []
        for name, inner in schema.fields:
            field = fields[self._key(name)]
            check = self.check(field.field_type, inner)
            if isinstance(field.field_type, DecimalType) and self._config.is_iceberg:
                check = partial(_has_digits, field.field_type, inner)
            if check is not None:
                checks.append((name, check))

        def fits(value: Any) -> bool:
            if value is None:
                return True
            if type(value) is not Struct or value.schema is not schema:
                return False
            return all(check(value.values.get(name)) for name, check in checks)

        return fits


def _value_type(kind: IcebergType) -> IcebergType:
    assert isinstance(kind, MapType)
    return kind.value_type


def _has_digits(column: DecimalType, schema: ConnectSchema, value: Any) -> bool:
    return _wider(column, schema, value) is None


def _items(value: Any, schema: ConnectSchema | None) -> Iterable[Any]:
    """Return the items to check, or one None to check the schema alone."""
    if type(value) is list:
        return value
    if type(value) is dict:
        return list(value.values())
    return (None,) if value is None and schema is not None else ()


def _inner(schema: ConnectSchema | None, kind: str) -> ConnectSchema | None:
    return schema.value_schema if schema is not None and schema.type == kind else None


def _wider(column: IcebergType, schema: ConnectSchema, value: Any) -> IcebergType | None:
    """Return the wider type that a column needs for a schema, or None if it needs no change."""
    if schema.name is None or not schema.name.startswith("org.apache.kafka.connect.data."):
        if isinstance(column, IntegerType) and schema.type == "int64":
            return LongType()
        if isinstance(column, FloatType) and schema.type == "float64":
            return DoubleType()
    if isinstance(column, DecimalType) and type(value) is Decimal and value.is_finite():
        whole_digits = value.adjusted() + 1 if value else 0
        precision = whole_digits + column.scale
        if column.precision < precision <= DECIMAL_PRECISION_MAX:
            return DecimalType(precision, column.scale)
    return None
