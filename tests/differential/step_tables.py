"""Tables and transformations of the tests of steps."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    NestedField,
)


def own(kind: str, **keys: str) -> dict[str, str]:
    options = {name.replace("_", "."): text for name, text in keys.items()}
    return {"type": f"icefloe.transforms.{kind}", **options}


def table(**columns: IcebergType) -> Schema:
    fields = enumerate(columns.items(), 1)
    return Schema(*(NestedField(i, name, kind, required=False) for i, (name, kind) in fields))
