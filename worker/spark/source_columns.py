"""Columns of Spark's Kafka source, as all reads select them."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from worker.spark.session import held_small

_HEADERS: Final = "array<struct<key: string, value: binary>>"
_HEADER_BYTES: Final = 16  # overhead of each header, such as its offsets in Arrow
_OF_ANY_SIZE: Final = {"key": "binary", "value": "binary", "headers": _HEADERS}


def source_column(name: str, *, is_small: bool) -> Column:
    """Return a column of the source: headers are never null, the size of small values is checked.

    Headers must not be null: where Spark reads the size of the Arrow vectors after each row, Arrow
    fills the list offsets from the last value that is not null. That takes quadratic time.
    """
    column, text = F.col(name), F.col(name)
    if name == "headers":
        column = F.coalesce(column, F.array().cast(_HEADERS))
        values = F.col("headers.value").cast("array<string>")
        text = F.concat_ws("", F.col("headers.key"), values)
    if is_small and name in _OF_ANY_SIZE:
        size = F.octet_length(text)
        if name == "headers":
            size = size + _HEADER_BYTES * F.size(column)
        column = held_small(column, size, _OF_ANY_SIZE[name])
    return column.alias(name)
