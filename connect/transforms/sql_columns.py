"""The columns of the view ``records``: names and Spark SQL types, as Iceberg types."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
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
    TimestampType,
    TimestamptzType,
)

from connect.errors import ConfigError
from connect.transforms.sql_query import split_names

_PRIMITIVES: Final[Mapping[str, IcebergType]] = {
    "BOOLEAN": BooleanType(),
    "INT": IntegerType(),
    "INTEGER": IntegerType(),
    "BIGINT": LongType(),
    "LONG": LongType(),
    "FLOAT": FloatType(),
    "REAL": FloatType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestamptzType(),
    "TIMESTAMP_LTZ": TimestamptzType(),
    "TIMESTAMP_NTZ": TimestampType(),
}
_DECIMAL: Final = re.compile(
    r"(?:DECIMAL|DEC|NUMERIC)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", re.IGNORECASE
)
_NESTED: Final = re.compile(r"(ARRAY|MAP|STRUCT)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRECISION_MAX: Final = 38
_RESERVED: Final = ("kafka",)
_HIDDEN: Final = "__"


def columns_schema(text: str) -> Schema:
    """The columns as a table's schema, all of them optional.

    Args:
        text: ``device STRING, cameras MAP<STRING, STRUCT<fps: INT>>``.

    Raises:
        ConfigError: ``sql_query``: a type that Spark or Iceberg has not, or a name twice.
    """
    ids = iter(range(1, 1 << 31))
    found = _fields(text, lambda: next(ids))
    for field in found:
        if field.name.lower() in _RESERVED or field.name.startswith(_HIDDEN):
            _refuse(f"no column of the records can be called {field.name}")
    return Schema(*found)


def spark_type(kind: IcebergType) -> str:
    """A column's type in Spark's SQL."""
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"ARRAY<{spark_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{f.name}: {spark_type(f.field_type)}' for f in kind.fields)}>"
    return next(name for name, known in _PRIMITIVES.items() if known == kind)


def _refuse(why: str) -> None:
    raise ConfigError(why, code="sql_query")


def _fields(text: str, new_id: Callable[[], int]) -> list[NestedField]:
    found: list[NestedField] = []
    for name, kind in split_names(text):
        if not _PLAIN_NAME.fullmatch(name):
            _refuse(f"the column name {name} has other characters than letters, digits and _")
        if name.lower() in (field.name.lower() for field in found):
            _refuse(f"two columns are called {name}")
        found.append(
            NestedField(
                field_id=new_id(),
                name=name,
                field_type=_type(kind.removeprefix(":").strip(), new_id),
                required=False,
            )
        )
    return found


def _type(text: str, new_id: Callable[[], int]) -> IcebergType:
    known = _PRIMITIVES.get(text.strip().upper())
    if known is not None:
        return known
    decimal = _DECIMAL.fullmatch(text.strip())
    if decimal is not None:
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        if not 1 <= precision <= _PRECISION_MAX or scale > precision:
            _refuse(f"no column has the type {text}")
        return DecimalType(precision, scale)
    nested = _NESTED.fullmatch(text.strip())
    if nested is None:
        raise ConfigError(f"no column of the records has the type {text}", code="sql_query")
    kind, inner = nested[1].upper(), nested[2]
    if kind == "STRUCT":
        return StructType(*_fields(inner, new_id))
    # an array's element and a map's two sides are read as fields with names of their own
    parts = split_names(", ".join(f"part {part}" for part in _top_level(inner)))
    if kind == "ARRAY" and len(parts) == 1:
        return ListType(
            element_id=new_id(), element=_type(parts[0][1], new_id), element_required=False
        )
    if kind == "MAP" and len(parts) == 2:
        return MapType(
            key_id=new_id(),
            key_type=_type(parts[0][1], new_id),
            value_id=new_id(),
            value_type=_type(parts[1][1], new_id),
            value_required=False,
        )
    raise ConfigError(f"no column of the records has the type {text}", code="sql_query")


def _top_level(text: str) -> list[str]:
    """Parts between commas that no bracket encloses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts
