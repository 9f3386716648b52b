"""Columns of the view ``records``: parses names and Spark SQL types to Iceberg types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
from connect.records.transforms.sql.sql_tokens import Token, displayed, refuse, tokens_of

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
_DECIMALS: Final = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_NESTED: Final = frozenset({"ARRAY", "MAP", "STRUCT"})
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRECISION_MAX: Final = 38
_RESERVED: Final = ("kafka",)
_HIDDEN: Final = "__"


def columns_schema(text: str) -> Schema:
    """Parse columns to a schema with optional fields.

    Args:
        text: ``device STRING, cameras MAP<STRING, STRUCT<fps: INT>>``.

    Raises:
        ConfigError: ``sql_query``; a type is not supported, or a name is duplicated.
    """
    reading = _Columns(tokens_of(text, brackets="(<"))
    fields = reading.fields(0)
    for field in fields:
        if field.name.lower() in _RESERVED or field.name.startswith(_HIDDEN):
            refuse(f"the name {field.name} is reserved and cannot be a column of the view records")
    return Schema(*fields)


def spark_type(kind: IcebergType) -> str:
    """Return the Spark SQL type of a column."""
    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, ListType):
        return f"ARRAY<{spark_type(kind.element_type)}>"
    if isinstance(kind, MapType):
        return f"MAP<{spark_type(kind.key_type)}, {spark_type(kind.value_type)}>"
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{f.name}: {spark_type(f.field_type)}' for f in kind.fields)}>"
    return next(name for name, primitive in _PRIMITIVES.items() if primitive == kind)


class _Columns:
    """Parser of columns and their types."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._ids = iter(range(1, 1 << 31))

    def fields(self, depth: int) -> list[NestedField]:
        """Parse ``name [:] type, name [:] type`` up to the closing bracket."""
        fields: list[NestedField] = []
        names: set[str] = set()
        while True:
            name = self._next()
            if name is None or name.kind not in ("identifier", "quoted") or self._is_end():
                refuse(
                    "a column is written as a name and a type, not "
                    f"{'nothing' if name is None else displayed([name])}"
                )
            if not _PLAIN_NAME.fullmatch(name.name):
                refuse(
                    f"the column name {displayed([name])} has characters other than letters, "
                    "digits and _"
                )
            if name.name.lower() in names:
                refuse(f"two columns have the name {name.name}")
            names.add(name.name.lower())
            self._skip(":")
            kind = self._type(depth)
            fields.append(NestedField(next(self._ids), name.name, kind, required=False))
            if not self._skip(","):
                break
        if not depth and (rest := self._next()) is not None:
            refuse(f"{displayed([rest])} follows a type where a comma or the end should be")
        return fields

    def _type(self, depth: int) -> IcebergType:
        name = self._next()
        text = "nothing" if name is None else name.text
        kind = text.upper()
        if kind in _DECIMALS:
            return self._decimal()
        if kind in _NESTED:
            if not self._skip("<"):
                refuse(f"{kind} requires element types: {kind}<...>")
            nested = self._nested(kind, depth + 1)
            if not self._skip(">"):
                refuse(f"the type {kind} has no element types")
            return nested
        primitive = _PRIMITIVES.get(kind)
        if primitive is None or name is None or name.kind != "identifier":
            raise ConfigError(f"the column type {text} is not supported", code="sql_query")
        return primitive

    def _nested(self, kind: str, depth: int) -> IcebergType:
        if kind == "STRUCT":
            return StructType(*self.fields(depth))
        if kind == "ARRAY":
            element = self._type(depth)
            return ListType(next(self._ids), element, element_required=False)
        key = self._type(depth)
        if not self._skip(","):
            refuse("MAP requires two types: MAP<key, value>")
        value = self._type(depth)
        return MapType(next(self._ids), key, next(self._ids), value, value_required=False)

    def _decimal(self) -> IcebergType:
        if not self._skip("("):
            return DecimalType(10, 0)
        precision = self._number()
        scale = self._number() if self._skip(",") else 0
        if not self._skip(")") or not 1 <= precision <= _PRECISION_MAX or scale > precision:
            refuse(f"the type DECIMAL({precision},{scale}) is not valid")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        token = self._next()
        if token is None or not re.fullmatch("[0-9]{1,3}", token.text):
            refuse("DECIMAL requires whole numbers: DECIMAL(precision, scale)")
        return int(token.text)

    def _next(self) -> Token | None:
        if self._position == len(self._tokens):
            return None
        self._position += 1
        return self._tokens[self._position - 1]

    def _skip(self, text: str) -> bool:
        is_next = self._position < len(self._tokens) and self._tokens[self._position].text == text
        self._position += is_next
        return is_next

    def _is_end(self) -> bool:
        return self._position == len(self._tokens) or self._tokens[self._position].text == ","
