"""Folders of partitions, named as Hive, Spark, DuckDB and PyArrow expect them.

Rules of this file:
- A column that partitions as it is is in the name of the folder only, as Hive and Spark write it: a
  reader that finds it in files, too, may refuse the folder because of another type.
- No value is lost: a value that has no text of its own is refused before the table is created.

Source:
    Spark 4.1 ``ExternalCatalogUtils.escapePathName``, ``getPartitionPathString``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TimeTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
)

from connect.errors import CommitRefused
from connect.model.partition_text import value_text

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
FOLDER_BYTES_MAX: Final = 255
PATH_BYTES_MAX: Final = 1_000  # S3 takes keys of 1,024 bytes
_KEPT_IN_FOLDERS: Final = (BooleanType, DateType, IntegerType, LongType, StringType)
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(32)))
_HIDDEN: Final = ("_", ".")
_EPOCH: Final = dt.date(1970, 1, 1)


def columns_in_folders(schema: Schema, spec: PartitionSpec) -> frozenset[str]:
    """Return the columns that are in the names of folders and not in files."""
    sources = [f.source_id for f in spec.fields if isinstance(f.transform, IdentityTransform)]
    return frozenset(schema.find_field(field_id).name for field_id in sources)


def check_partitions(schema: Schema, spec: PartitionSpec) -> None:
    """Check that every reader finds the partitions of a table.

    Raises:
        CommitRefused: ``parquet_unsupported``.
    """
    for part in spec.fields:
        name = schema.find_column_name(part.source_id) or ""
        kind = schema.find_type(part.source_id)
        if "." in name:
            raise unsupported(f"partition column {name} is not at the top level")
        if part.name.startswith(_HIDDEN):
            raise unsupported(
                f"partition column {part.name}: readers ignore folders whose names begin with _ or "
                ". ; rename the column"
            )
        if isinstance(part.transform, TimeTransform):
            continue
        if not isinstance(part.transform, IdentityTransform):
            raise unsupported(
                f"partition term {part.transform}({name}): folders are partitioned by columns, and "
                "by year, month, day or hour of one"
            )
        if not isinstance(kind, _KEPT_IN_FOLDERS):
            raise unsupported(
                f"partition column {name} has type {kind}, which has no text that every reader "
                "understands; use year, month, day or hour of it, or another column"
            )
    if spec.fields and len(columns_in_folders(schema, spec)) == len(schema.fields):
        raise unsupported("every column is a partition column, so files would have no column")


def partition_path(schema: Schema, spec: PartitionSpec, values: Mapping[int, Any]) -> str:
    """Return the folder of a partition below the table's; empty without partition columns.

    Args:
        schema: of the table.
        spec: of the table.
        values: by field id of the spec, in Iceberg's internal form.
    """
    return "/".join(
        f"{_escaped(part.name)}={_text(part, schema.find_type(part.source_id), values)}"
        for part in spec.fields
    )


def is_too_long(location: str, folder: str, file_name: str) -> bool:
    """Return whether a store may refuse a file's path because of its partition's values.

    Args:
        location: of the table, with a scheme.
        folder: of the partition.
        file_name: in it.
    """
    longest = max(len(segment.encode()) for segment in folder.split("/"))
    path = f"{location.partition('://')[2]}/{folder}/{file_name}"
    return longest > FOLDER_BYTES_MAX or len(path.encode()) > PATH_BYTES_MAX


def unsupported(reason: str) -> CommitRefused:
    """Return the error of a folder or change that is not supported."""
    message = f"the Parquet folder is not supported: {reason}"
    return CommitRefused(message, code="parquet_unsupported")


def _text(part: PartitionField, kind: IcebergType, values: Mapping[int, Any]) -> str:
    value = values[part.field_id]
    if value is None or value == "":  # as Hive and Spark: an empty name could not be a folder's
        return NULL_PARTITION
    if isinstance(part.transform, TimeTransform):
        return _escaped(value_text(part.transform, kind, value))
    if isinstance(kind, BooleanType):
        return "true" if value else "false"
    if isinstance(kind, DateType):
        return _date(value)
    return _escaped(str(value))


def _date(days: int) -> str:
    try:
        return (_EPOCH + dt.timedelta(days=days)).isoformat()
    except OverflowError:  # before year 1 or after year 9999: not a date for readers, but not lost
        return f"epoch-day{days:+d}"


def _escaped(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)
