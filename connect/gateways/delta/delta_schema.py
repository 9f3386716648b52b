"""Schemas of Delta tables as Iceberg schemas, with which the worker writes files.

Rules of this file:
- Delta knows a column by its name, and files hold the names. A field id is therefore computed from
  path and type, equal in every process. Metrics of a file name its columns by these ids, so a file
  that was written for a column of another type is recognized.
- A column that the worker cannot write, or whose rules it does not check, makes the table
  unsupported. It is never written in part.

Source:
    Delta transaction log protocol, "Schema Serialization Format" and "Column Metadata".
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
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
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from connect.errors import CommitRefused

PARTITION_FIELD_FIRST: Final = 1000
_PLAIN: Final[Mapping[str, IcebergType]] = {
    "boolean": BooleanType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
    "string": StringType(),
    "binary": BinaryType(),
}
_NAMES: Final = {type(kind): name for name, kind in _PLAIN.items()} | {
    UUIDType: "string",
    FixedType: "binary",
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_RULES: Final = ("delta.generationExpression", "delta.invariants", "delta.identity.start")
# delta-rs misreads negative decimals in partitions
_PARTITIONABLE: Final = (
    BooleanType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
_ID_FIRST: Final = 10_000
_IDS: Final = 2**30

Path = tuple[str, ...]


def iceberg_schema(text: str) -> Schema:
    """Return a Delta schema as Iceberg schema.

    Args:
        text: ``schemaString`` of the table's metadata.

    Raises:
        CommitRefused: ``delta_unsupported``: a column cannot be written.
    """
    ids = _Ids()
    fields = [_field((), each, ids) for each in json.loads(text)["fields"]]
    try:
        return Schema(*fields)
    except ValueError as error:  # names such as ``a.b`` next to a field ``b`` of ``a``
        raise unsupported(f"its column names are ambiguous: {error}") from error


def partition_spec(schema: Schema, columns: Sequence[str]) -> PartitionSpec:
    """Return the spec for a Delta table's partition columns.

    Raises:
        CommitRefused: ``delta_unsupported``: the type of a partition column cannot be written.
    """
    if not columns:
        return UNPARTITIONED_PARTITION_SPEC
    fields = []
    for position, name in enumerate(columns):
        column = schema.find_field(name)
        if not isinstance(column.field_type, _PARTITIONABLE):
            raise unsupported(f"partition column {name} has type {column.field_type}")
        fields.append(
            PartitionField(
                source_id=column.field_id,
                field_id=PARTITION_FIELD_FIRST + position,
                transform=IdentityTransform(),
                name=name,
            )
        )
    return PartitionSpec(*fields, spec_id=0)


def partition_columns(schema: Schema, spec: PartitionSpec) -> list[str]:
    """Return the partition columns of a table to create.

    Raises:
        CommitRefused: ``delta_unsupported``: a term is no column, or its type cannot be a
            partition's.
    """
    names = []
    for part in spec.fields:
        name = schema.find_column_name(part.source_id) or ""
        if not isinstance(part.transform, IdentityTransform) or "." in name:
            raise unsupported(
                f"partition term {part.transform}({name}): Delta partitions by columns only; add "
                "the value as a column, for example with a transformation"
            )
        names.append(name)
    partition_spec(schema, names)
    return names


def delta_fields(schema: Schema) -> list[dict[str, Any]]:
    """Return the columns of an Iceberg schema as Delta fields.

    Raises:
        CommitRefused: ``delta_unsupported``.
    """
    return [_delta_field(each) for each in schema.fields]


def delta_schema_text(fields: Sequence[Mapping[str, Any]]) -> str:
    """Return fields as a Delta schema in JSON."""
    return json.dumps({"type": "struct", "fields": list(fields)})


def added_fields(present: Schema, target: Schema) -> list[dict[str, Any]]:
    """Return the Delta fields that make ``target`` of ``present``: new columns, at any depth.

    Raises:
        CommitRefused: ``delta_unsupported``: a column would change otherwise.
    """
    present_fields = {each.name: each for each in present.fields}
    fields = []
    for each in target.fields:
        before = present_fields.get(each.name)
        if before is None:
            fields.append(_delta_field(each))
        elif (kind := _added(before.field_type, each.field_type)) is not None:
            fields.append({**_delta_field(before), "type": kind})
        elif before.required != each.required:
            raise unsupported(f"column {each.name} cannot be made optional")
    return fields


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without nested columns.

    Attributes:
        path: names from the top-level column down.
        kind: its type.
        is_repeated: whether it is in a list or map.
    """

    path: Path
    kind: IcebergType
    is_repeated: bool


def leaves(schema: Schema) -> dict[int, Leaf]:
    """Return every column without nested columns, by field id."""
    by_id: dict[int, Leaf] = {}

    def visit(path: Path, field_id: int, kind: IcebergType, *, is_repeated: bool) -> None:
        if isinstance(kind, StructType):
            for each in kind.fields:
                visit((*path, each.name), each.field_id, each.field_type, is_repeated=is_repeated)
        elif isinstance(kind, ListType):
            visit((*path, "element"), kind.element_id, kind.element_type, is_repeated=True)
        elif isinstance(kind, MapType):
            visit((*path, "key"), kind.key_id, kind.key_type, is_repeated=True)
            visit((*path, "value"), kind.value_id, kind.value_type, is_repeated=True)
        else:
            by_id[field_id] = Leaf(path, kind, is_repeated)

    for column in schema.fields:
        visit((column.name,), column.field_id, column.field_type, is_repeated=False)
    return by_id


def unsupported(reason: str) -> CommitRefused:
    """Return the error of a table or change that is not supported."""
    return CommitRefused(f"the Delta table is not supported: {reason}", code="delta_unsupported")


class _Ids:
    """Field ids by path and type."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def of(self, path: Path, kind: str) -> int:
        text = "\0".join((kind, *path))
        field_id = (
            _ID_FIRST + int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % _IDS
        )
        # of 1,000 columns, two have the same number once in 2,000 tables
        if field_id in self._taken:
            raise unsupported(f"column {'.'.join(path)} has the number of another; rename it")
        self._taken.add(field_id)
        return field_id


def _field(parent: Path, field: Mapping[str, Any], ids: _Ids) -> NestedField:
    path = (*parent, field["name"])
    if rules := sorted(set(_RULES) & set(field.get("metadata") or {})):
        raise unsupported(f"column {'.'.join(path)} has {rules[0]}, which is not checked")
    return NestedField(
        field_id=ids.of(path, _kind_name(field["type"])),
        name=field["name"],
        field_type=_type(path, field["type"], ids),
        required=not field["nullable"],
    )


def _kind_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def _type(path: Path, kind: Any, ids: _Ids) -> IcebergType:
    if isinstance(kind, str):
        if (plain := _PLAIN.get(kind)) is not None:
            return plain
        if match := _DECIMAL.fullmatch(kind):
            return DecimalType(int(match[1]), int(match[2]))
        raise unsupported(f"column {'.'.join(path)} has type {kind}")
    match kind["type"]:
        case "struct":
            return StructType(*(_field(path, each, ids) for each in kind["fields"]))
        case "array":
            inner = (*path, "element")
            return ListType(
                element_id=ids.of(inner, _kind_name(kind["elementType"])),
                element_type=_type(inner, kind["elementType"], ids),
                element_required=not kind["containsNull"],
            )
        case "map":
            key, value = (*path, "key"), (*path, "value")
            return MapType(
                key_id=ids.of(key, _kind_name(kind["keyType"])),
                key_type=_type(key, kind["keyType"], ids),
                value_id=ids.of(value, _kind_name(kind["valueType"])),
                value_type=_type(value, kind["valueType"], ids),
                value_required=not kind["valueContainsNull"],
            )
        case other:
            raise unsupported(f"column {'.'.join(path)} has type {other}")


def _delta_field(field: NestedField) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _delta_type(field.name, field.field_type),
        "nullable": not field.required,
        "metadata": {},
    }


def _delta_type(name: str, kind: IcebergType) -> Any:
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_delta_field(each) for each in kind.fields]}
    if isinstance(kind, ListType):
        element = _delta_type(name, kind.element_type)
        return _array(element, has_nulls=not kind.element_required)
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "keyType": _delta_type(name, kind.key_type),
            "valueType": _delta_type(name, kind.value_type),
            "valueContainsNull": not kind.value_required,
        }
    if isinstance(kind, DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if (plain := _NAMES.get(type(kind))) is None:
        raise unsupported(f"column {name} would have type {kind}, which Delta does not have")
    return plain


def _array(element: Any, *, has_nulls: bool) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": has_nulls}


def _added(before: IcebergType, after: IcebergType) -> Any:
    """Return the type with the fields that ``after`` has in addition; None if there are none."""
    if isinstance(before, StructType) and isinstance(after, StructType):
        fields = list(_added_of_struct(before, after))
        return {"type": "struct", "fields": fields} if fields else None
    if isinstance(before, ListType) and isinstance(after, ListType):
        element = _added(before.element_type, after.element_type)
        if element is None:
            return None
        return _array(element, has_nulls=not before.element_required)
    if isinstance(before, MapType) and isinstance(after, MapType):
        value = _added(before.value_type, after.value_type)
        if value is None:
            return None
        return {**_delta_type("", before), "valueType": value}
    if before != after:
        raise unsupported(f"a column's type cannot change from {before} to {after}")
    return None


def _added_of_struct(before: StructType, after: StructType) -> Iterator[dict[str, Any]]:
    fields_before = {each.name: each for each in before.fields}
    for each in after.fields:
        present = fields_before.get(each.name)
        if present is None:
            yield _delta_field(each)
        elif (kind := _added(present.field_type, each.field_type)) is not None:
            yield {**_delta_field(present), "type": kind}
