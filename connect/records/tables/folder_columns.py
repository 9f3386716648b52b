"""Columns that a connector of Delta tables or Parquet folders may add.

Rules of this file:
- A record that needs a column that Delta does not have, or not every reader of Parquet, is rejected
  before the table is asked. Its table stays usable for other records.

Source:
    Delta transaction log protocol, "Primitive Types"; column names without column mapping.
"""

from __future__ import annotations

import re
from typing import Final

from pyiceberg.types import (
    BinaryType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)

from connect.errors import RecordError

_NOT_IN_NAMES: Final = re.compile(r"[ ,;{}()\n\t=]")


def folder_column_type(name: str, kind: IcebergType) -> IcebergType:
    """Return the type of a new column: uuid becomes string, fixed binary.

    Raises:
        RecordError: ``bad_column_name``, ``unsupported_type``.
    """
    if _NOT_IN_NAMES.search(name):
        raise RecordError(
            f"columns cannot be named {name!r}: a name has no space and none of ,;{{}}()=",
            code="bad_column_name",
        )
    if isinstance(kind, UUIDType):
        return StringType()
    if isinstance(kind, FixedType):
        return BinaryType()
    if isinstance(kind, TimeType):
        raise RecordError(
            f"field {name!r} is a time of day, which the tables cannot hold: make it a string or a "
            "number with a transformation",
            code="unsupported_type",
        )
    if isinstance(kind, StructType):
        return folder_struct(kind)
    if isinstance(kind, ListType):
        element = folder_column_type("element", kind.element_type)
        return kind.model_copy(update={"element_type": element})
    if isinstance(kind, MapType):
        key, value = (
            folder_column_type(part, each)
            for part, each in (("key", kind.key_type), ("value", kind.value_type))
        )
        return kind.model_copy(update={"key_type": key, "value_type": value})
    return kind


def folder_struct(kind: StructType) -> StructType:
    """Return a struct with the types of ``folder_column_type``; errors as there."""
    return StructType(
        *(
            each.model_copy(update={"field_type": folder_column_type(each.name, each.field_type)})
            for each in kind.fields
        )
    )
