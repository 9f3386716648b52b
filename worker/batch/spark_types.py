"""Arrow types of columns in Spark, by their Iceberg type."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
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
    StringType,
    StructType,
    TimestampType,
)

_STAMP: Final = pa.timestamp("us", "UTC")
_PRIMITIVES: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us"),
}


def spark_arrow(kind: IcebergType) -> pa.DataType:
    """Return the Arrow type of a column in Spark."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ListType):
        return pa.list_(spark_arrow(kind.element_type))
    if isinstance(kind, MapType):
        return pa.map_(spark_arrow(kind.key_type), spark_arrow(kind.value_type))
    if isinstance(kind, StructType):
        return pa.struct([(f.name, spark_arrow(f.field_type)) for f in kind.fields])
    return _PRIMITIVES.get(type(kind), _STAMP)
