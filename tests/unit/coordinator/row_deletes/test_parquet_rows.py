"""Copies of Parquet files: the rows that stay, in the types of their source."""

from __future__ import annotations

import io
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator.row_deletes import parquet_rows
from coordinator.row_deletes.deleted_keys import IN_TABLE, DeletedKeys
from coordinator.row_deletes.limits import NotResolved
from coordinator.row_deletes.parquet_rows import (
    KeyColumns,
    RowFilter,
    copy_rows,
    has_deleted_rows,
    open_parquet,
)

OPTIONS = {"compression": "zstd", "store_schema": False, "version": "2.6"}


class Copies:
    """Creates copies in memory."""

    def __init__(self) -> None:
        self.content: io.BytesIO | None = None

    def create(self) -> Any:
        """A stream that keeps its content when it is closed."""
        self.content = io.BytesIO()
        return pa.PythonFile(_Kept(self.content), mode="w")


class _Kept:
    def __init__(self, inner: io.BytesIO) -> None:
        self._inner = inner
        self.closed = False

    def write(self, data: bytes) -> int:
        return self._inner.write(data)

    def tell(self) -> int:
        return self._inner.tell()

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def deleting(*ids: int, constants: dict[int, Any] | None = None) -> RowFilter:
    """A filter by column ``id``."""
    kind = pa.int64()
    keys = DeletedKeys([(0, [pa.array(ids, kind)])])

    def names_of(schema: pa.Schema) -> dict[int, str]:
        return {1: "id"} if "id" in schema.names else {}

    return RowFilter([(KeyColumns((1,), (kind,)), keys)], IN_TABLE, names_of, constants or {})


def written(table: pa.Table, **options: Any) -> pq.ParquetFile:
    """A file with a table."""
    sink = io.BytesIO()
    pq.write_table(table, sink, store_schema=False, **options)
    return open_parquet(pa.BufferReader(sink.getvalue()))


def copied(file: pq.ParquetFile, rows: RowFilter) -> pq.ParquetFile | None:
    """The copy of a file."""
    copies = Copies()
    found = copy_rows(file, rows, copies.create, OPTIONS, lambda: None)
    if found is None:
        assert copies.content is None
        return None
    footer, size = found
    assert copies.content is not None
    content = copies.content.getvalue()
    assert (footer.num_rows, size) == (
        pq.ParquetFile(io.BytesIO(content)).metadata.num_rows,
        len(content),
    )
    return pq.ParquetFile(io.BytesIO(content))


def test_a_copy_has_the_rows_and_types_of_its_source() -> None:
    """Also nested columns, with their field ids; row groups are joined."""
    number = {"PARQUET:field_id": "7"}
    schema = pa.schema(
        [
            pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "1"}),
            pa.field("amount", pa.decimal128(9, 2), metadata={"PARQUET:field_id": "2"}),
            pa.field("at", pa.timestamp("us", "UTC"), metadata={"PARQUET:field_id": "3"}),
            pa.field("key", pa.uuid(), metadata={"PARQUET:field_id": "4"}),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), metadata=number))),
            pa.field("own", pa.struct([pa.field("a", pa.time64("us"), metadata=number)])),
        ]
    )
    rows = [
        {
            "id": n or None,
            "amount": Decimal(n) / 4,
            "at": datetime(2026, 1, 1, tzinfo=UTC),
            "key": uuid.UUID(int=n).bytes,
            "tags": [str(n), None],
            "own": {"a": None},
        }
        for n in range(50)
    ]
    table = pa.Table.from_pylist(rows, schema)
    source = written(table, row_group_size=10, store_decimal_as_integer=True)
    copy = copied(source, deleting(*range(10, 20), 45))
    assert copy is not None
    expected = [n for n in range(50) if not 10 <= n < 20 and n != 45]
    assert copy.read().equals(source.read().take(expected))
    assert copy.metadata.num_row_groups == 1
    for field in schema:
        assert copy.schema_arrow.field(field.name).equals(source.schema_arrow.field(field.name))
        assert (
            copy.schema_arrow.field(field.name).metadata
            == source.schema_arrow.field(field.name).metadata
        )


def test_no_row_left_is_no_copy() -> None:
    """The file is removed then."""
    source = written(pa.table({"id": pa.array([1, 2], pa.int64())}))
    assert copied(source, deleting(1, 2)) is None


def test_a_missing_column_is_the_partition_or_null() -> None:
    """As for readers."""
    source = written(pa.table({"other": [1, 2, 3]}))
    assert not has_deleted_rows(source, deleting(5), lambda: None)
    assert has_deleted_rows(source, deleting(5, constants={1: 5}), lambda: None)
    nulls = DeletedKeys([(0, [pa.array([None], pa.int64())])])
    rows = RowFilter([(KeyColumns((1,), (pa.int64(),)), nulls)], IN_TABLE, lambda _: {}, {})
    assert has_deleted_rows(source, rows, lambda: None)


def test_memory_is_bounded_by_small_batches() -> None:
    """Values of a dictionary count with their size."""
    text = "x" * 10_000
    table = pa.table({"id": pa.array(range(8_000), pa.int64()), "text": [text] * 8_000})
    source = written(table)
    batches = list(parquet_rows._batches(source, 0, None))
    assert sum(batch.num_rows for batch in batches) == 8_000
    assert max(batch.nbytes for batch in batches) < 4 * parquet_rows._BATCH_BYTES


def test_types_that_arrow_cannot_keep_are_not_copied() -> None:
    """The column would have another meaning for readers."""
    source = written(
        pa.table(
            {
                "id": pa.array([1, 2], pa.int64()),
                "a": pa.array([0, 1], pa.timestamp("us")),
            }
        ),
        use_deprecated_int96_timestamps=True,
    )
    with pytest.raises(NotResolved):
        parquet_rows._check_same_form(
            source.metadata.schema,
            written(pa.table({"id": pa.array([1], pa.int64())})).metadata.schema,
        )
    copy = copied(source, deleting(1))
    assert copy is not None
    assert copy.schema.column(1).physical_type == "INT96"


def test_keys_of_another_type_are_refused() -> None:
    """A text is no number."""
    source = written(pa.table({"id": ["a"]}))
    with pytest.raises(NotResolved) as caught:
        has_deleted_rows(source, deleting(1), lambda: None)
    assert caught.value.reason == "key_columns"
