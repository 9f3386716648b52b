"""Types of Iceberg's format version 3 that PyIceberg 0.12 lacks: variant, in columns and structs.

Rules of this file:
- A module that parses schemas of tables imports this one: a type is known after that.
- PyIceberg parses elements of lists and values of maps by another way. A variant in them is not
  known, and such a table is refused.

Source:
    Iceberg's table specification, "Semi-structured Types" and "JSON single-value serialization".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, cast

import pyarrow as pa
from pydantic import Field
from pyiceberg.conversions import from_json, to_json
from pyiceberg.io.pyarrow import _ConvertToArrowSchema
from pyiceberg.schema import Schema, visit
from pyiceberg.typedef import TableVersion
from pyiceberg.types import (
    IcebergType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

VARIANT_STORAGE: Final = pa.struct(
    [
        pa.field("metadata", pa.large_binary(), nullable=False),
        pa.field("value", pa.large_binary(), nullable=False),
    ]
)
"""A variant in Arrow and, with an annotation of its group, in Parquet."""


class VariantType(PrimitiveType):
    """Semi-structured data: a value of any type of Parquet's variant encoding."""

    root: Literal["variant"] = Field(default="variant")

    def minimum_format_version(self) -> TableVersion:
        """The version of the format that has the type."""
        return 3


class _ArrowSchema(_ConvertToArrowSchema):
    """As PyIceberg's, with variants."""

    def primitive(self, primitive: PrimitiveType) -> pa.DataType:
        if isinstance(primitive, VariantType):
            return VARIANT_STORAGE
        return super().primitive(primitive)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's rows, with field ids."""
    converted: pa.Schema = visit(schema, _ArrowSchema())
    return converted


def variant_paths(schema: Schema) -> frozenset[tuple[str, ...]]:
    """Return the names that lead to each variant."""
    return frozenset(_paths((), schema.fields))


def _paths(parent: tuple[str, ...], fields: Iterable[NestedField]) -> Iterator[tuple[str, ...]]:
    for field in fields:
        path = (*parent, field.name)
        if isinstance(field.field_type, VariantType):
            yield path
        elif isinstance(field.field_type, StructType):
            yield from _paths(path, field.field_type.fields)


_parse: Callable[[Any, Any], IcebergType] = cast("Any", IcebergType.handle_primitive_type)


def _parse_type(_: type[IcebergType], value: Any, handler: Any) -> IcebergType:
    if value == "variant":
        return VariantType()
    return _parse(value, handler)


def _same(_: PrimitiveType, value: Any) -> Any:
    """Keep the text of a default of nanoseconds."""
    return value


# the only places where PyIceberg is changed; it offers no other way to add a type
IcebergType.handle_primitive_type = classmethod(_parse_type)  # type: ignore[assignment]  # as before
for _kind in (TimestampNanoType, TimestamptzNanoType):
    from_json.register(_kind, _same)
    to_json.register(_kind, _same)
