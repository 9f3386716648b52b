"""Changes of a table's schema: collects, merges and applies them.

Rules of this file:
- A change adds an optional column at any depth, widens a type (int to long, float to double,
  decimal precision), or makes a column optional. Columns are never dropped, renamed or narrowed.
- If two records need different types for a new column, it gets string if one type is string, else
  the wider type, else the first one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema, index_by_name
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
    StringType,
    StructType,
)

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.records.conversion.numbers import DECIMAL_PRECISION_MAX
from connect.records.tables.type_inference import PLACEHOLDER_ID, list_of

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """The changes of a schema. A path is a full name in parts, including ``element`` and ``value``.

    Attributes:
        adds: types of new columns by path, with placeholder ids.
        retypes: wider types of existing columns.
        optionals: columns to make optional.
    """

    adds: Mapping[Path, IcebergType]
    retypes: Mapping[Path, IcebergType]
    optionals: tuple[Path, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there are changes."""
        return bool(self.adds or self.retypes or self.optionals)

    @property
    def new_columns(self) -> int:
        """Return the number of columns to add, including nested columns."""
        return sum(count_columns(kind) for kind in self.adds.values())

    def to_json(self) -> str:
        """Serialize the changes for another process."""
        return json.dumps(
            {
                "adds": [[list(path), _type_json(kind)] for path, kind in self.adds.items()],
                "retypes": [[list(path), _type_json(kind)] for path, kind in self.retypes.items()],
                "optionals": [list(path) for path in self.optionals],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> SchemaChanges:
        """Deserialize the result of ``to_json``."""
        data = json.loads(text)
        return cls(
            adds={tuple(path): _type_from(kind) for path, kind in data["adds"]},
            retypes={tuple(path): _type_from(kind) for path, kind in data["retypes"]},
            optionals=tuple(tuple(path) for path in data["optionals"]),
        )


def _type_json(kind: IcebergType) -> Any:
    field = NestedField(field_id=PLACEHOLDER_ID, name="c", field_type=kind, required=False)
    return json.loads(field.model_dump_json())["type"]


def _type_from(kind: Any) -> IcebergType:
    """Parse a type from Iceberg's JSON. pyiceberg parses types only as part of a field."""
    field = {"id": PLACEHOLDER_ID, "name": "c", "required": False, "type": kind}
    return NestedField.model_validate(field).field_type


def count_columns(kind: IcebergType) -> int:
    """Return the number of columns in a type: 1, or the fields of structs at all depths."""
    if isinstance(kind, StructType):
        return 1 + sum(count_columns(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return count_columns(kind.element_type)
    if isinstance(kind, MapType):
        return count_columns(kind.key_type) + count_columns(kind.value_type)
    return 1


def check_count(changes: SchemaChanges, config: ConnectorConfig) -> None:
    """Check the limit of new columns.

    Raises:
        RecordError: code ``too_many_columns``.
    """
    if changes.new_columns > config.max_new_columns:
        raise RecordError(
            f"the batch adds {changes.new_columns} columns, more than "
            f"iceberg.tables.max-new-columns ({config.max_new_columns})",
            code="too_many_columns",
        )


def common_type(first: IcebergType, second: IcebergType) -> IcebergType:
    """Return the type of a new column for which two records or items need different types."""
    if isinstance(first, StructType) and isinstance(second, StructType):
        fields = {field.name: field for field in first.fields}
        for field in second.fields:
            before = fields.get(field.name)
            fields[field.name] = field if before is None else _common_field(before, field)
        return StructType(*fields.values())
    if isinstance(first, ListType) and isinstance(second, ListType):
        return list_of(
            common_type(first.element_type, second.element_type),
            required=first.element_required and second.element_required,
        )
    if isinstance(first, MapType) and isinstance(second, MapType):
        return MapType(
            key_id=PLACEHOLDER_ID,
            key_type=common_type(first.key_type, second.key_type),
            value_id=PLACEHOLDER_ID,
            value_type=common_type(first.value_type, second.value_type),
            value_required=first.value_required and second.value_required,
        )
    return _common_primitive(first, second)


def _common_field(first: NestedField, second: NestedField) -> NestedField:
    return NestedField(
        field_id=PLACEHOLDER_ID,
        name=first.name,
        field_type=common_type(first.field_type, second.field_type),
        required=first.required and second.required,
    )


def _common_primitive(first: IcebergType, second: IcebergType) -> IcebergType:
    kinds = {type(first), type(second)}
    if isinstance(first, DecimalType) and isinstance(second, DecimalType):
        scale = max(first.scale, second.scale)
        whole = max(first.precision - first.scale, second.precision - second.scale)
        if whole + scale <= DECIMAL_PRECISION_MAX:
            return DecimalType(whole + scale, scale)
        return first
    if kinds == {IntegerType, LongType}:
        return LongType()
    if kinds == {FloatType, DoubleType} or kinds in (
        {LongType, DoubleType},
        {IntegerType, DoubleType},
    ):
        return DoubleType()
    if StringType in kinds:
        return StringType()
    return first


def merge(*several: SchemaChanges, config: ConnectorConfig | None = None) -> SchemaChanges:
    """Merge the changes of several records of one table, in record order.

    Args:
        several: changes of the same schema.
        config: if given, limits the number of new columns.

    Raises:
        RecordError: code ``too_many_columns``.
    """
    adds: dict[Path, IcebergType] = {}
    retypes: dict[Path, IcebergType] = {}
    optionals: dict[Path, None] = {}
    for changes in several:
        for path, kind in changes.adds.items():
            adds[path] = common_type(adds[path], kind) if path in adds else kind
        for path, kind in changes.retypes.items():
            retypes[path] = common_type(retypes[path], kind) if path in retypes else kind
        optionals.update(dict.fromkeys(changes.optionals))
    merged = SchemaChanges(adds, retypes, tuple(optionals))
    if config is not None:
        check_count(merged, config)
    return merged


def fitting(schema: Schema, adds: Mapping[Path, IcebergType]) -> dict[Path, IcebergType]:
    """Return the new columns with names, including nested names, that are unique in the table.

    A table does not distinguish the column ``a.b`` from the field ``b`` of ``a``, nor from a mapped
    name of another column. Of two conflicting new columns the first one is kept.
    """
    taken: set[str] = set()
    fitted: dict[Path, IcebergType] = {}
    present = index_by_name(schema) if adds else {}
    for path, kind in adds.items():
        names = list(full_names(".".join(path), kind))
        if not any(name in present or name in taken for name in names):
            taken.update(names)
            fitted[path] = kind
    return fitted


def full_names(name: str, kind: IcebergType) -> Iterator[str]:
    """Return the full names of a column and of all that is nested in it."""
    yield name
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from full_names(f"{name}.{field.name}", field.field_type)
    elif isinstance(kind, ListType):
        yield from full_names(f"{name}.element", kind.element_type)
    elif isinstance(kind, MapType):
        yield from full_names(f"{name}.key", kind.key_type)
        yield from full_names(f"{name}.value", kind.value_type)


def apply_changes(
    schema: Schema, changes: SchemaChanges, last_column_id: int
) -> tuple[Schema, int]:
    """Apply changes to a schema; return the new schema and the new last column id.

    Args:
        schema: the table's current schema.
        changes: changes of this schema or of an earlier one. A change is skipped if the column
            already exists, is already wider, or has the name of another column. The record that
            needs the change is then processed again and rejected if it does not fit.
        last_column_id: the highest column id ever assigned in the table.
    """
    adds = fitting(schema, changes.adds)
    applier = _Applier(dataclasses.replace(changes, adds=adds), last_column_id)
    struct = applier.struct((), schema.as_struct())
    changed = Schema(
        *struct.fields,
        schema_id=schema.schema_id,
        identifier_field_ids=list(schema.identifier_field_ids),
    )
    return changed, applier.last_column_id


def _widened(present: IcebergType, requested: IcebergType | None) -> IcebergType:
    """Return the wider type. Another writer may have widened the column further than requested."""
    if isinstance(present, DecimalType) and isinstance(requested, DecimalType):
        is_wider = present.scale == requested.scale and present.precision < requested.precision
    else:
        is_wider = (type(present), type(requested)) in _WIDENINGS
    return requested if is_wider and requested is not None else present


_WIDENINGS = frozenset({(IntegerType, LongType), (FloatType, DoubleType)})


class _Applier:
    """Rebuilds a schema with changes. A new column gets its id before its nested columns."""

    def __init__(self, changes: SchemaChanges, last_column_id: int) -> None:
        self._asked = changes
        self.last_column_id = last_column_id

    def _next_id(self) -> int:
        self.last_column_id += 1
        return self.last_column_id

    def struct(self, path: Path, kind: StructType) -> StructType:
        """Return a struct with its own and nested changes."""
        fields = [self._field((*path, field.name), field) for field in kind.fields]
        names = {field.name for field in kind.fields}
        for target, new in self._asked.adds.items():
            if target[:-1] == path and target[-1] not in names:
                field_id = self._next_id()
                fields.append(
                    NestedField(
                        field_id=field_id,
                        name=target[-1],
                        field_type=self._fresh(new),
                        required=False,
                    )
                )
        return StructType(*fields)

    def _field(self, path: Path, field: NestedField) -> NestedField:
        kind = _widened(field.field_type, self._asked.retypes.get(path))
        required = field.required and path not in self._asked.optionals
        inside = self._inside(path, kind)
        if inside is field.field_type and required == field.required:
            return field
        return field.model_copy(update={"field_type": inside, "required": required})

    def _inside(self, path: Path, kind: IcebergType) -> IcebergType:
        if isinstance(kind, StructType):
            return self.struct(path, kind)
        if isinstance(kind, ListType):
            return ListType(  # a copy would keep PyIceberg's cached field of the old element
                element_id=kind.element_id,
                element=self._inside((*path, "element"), kind.element_type),
                element_required=kind.element_required,
            )
        if isinstance(kind, MapType):
            return MapType(
                key_id=kind.key_id,
                key_type=kind.key_type,
                value_id=kind.value_id,
                value_type=self._inside((*path, "value"), kind.value_type),
                value_required=kind.value_required,
            )
        return kind

    def _fresh(self, kind: IcebergType) -> IcebergType:
        """Return a new column's type with ids, assigned level by level."""
        if isinstance(kind, StructType):
            ids = [self._next_id() for _ in kind.fields]
            return StructType(
                *(
                    NestedField(
                        field_id=field_id,
                        name=field.name,
                        field_type=self._fresh(field.field_type),
                        required=field.required,
                    )
                    for field_id, field in zip(ids, kind.fields, strict=True)
                )
            )
        if isinstance(kind, ListType):
            element_id = self._next_id()
            return ListType(
                element_id=element_id,
                element=self._fresh(kind.element_type),
                element_required=kind.element_required,
            )
        if isinstance(kind, MapType):
            key_id, value_id = self._next_id(), self._next_id()
            return MapType(
                key_id=key_id,
                key_type=self._fresh(kind.key_type),
                value_id=value_id,
                value_type=self._fresh(kind.value_type),
                value_required=kind.value_required,
            )
        return kind
