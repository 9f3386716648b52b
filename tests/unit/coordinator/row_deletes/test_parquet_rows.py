"""Copies of Parquet files: the rows that stay, in the types of their source."""

from __future__ import annotations

import io
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from connect.gateways.storage.variant_footer import VariantFooter
from connect.model.table_types import VARIANT_STORAGE
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
from coordinator.row_deletes.row_state import UNKNOWN, RowLineage, RowState

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


def copied(
    file: pq.ParquetFile, rows: RowFilter, state: RowState = UNKNOWN
) -> pq.ParquetFile | None:
    """The copy of a file."""
    copies = Copies()
    found = copy_rows(file, rows, copies.create, OPTIONS, lambda: None, state=state)
    if found is None:
        assert copies.content is None
        return None
    assert copies.content is not None
    content = copies.content.getvalue()
    assert (found.footer.num_rows, found.size_bytes) == (
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


HOSTILE = """
import sys
from tests.unit.coordinator.row_deletes.test_parquet_rows import copied, deleting, hostile_file
try:
    copied(hostile_file(), deleting(2))
except OSError:
    sys.exit(7)
"""


def hostile_file() -> pq.ParquetFile:
    """A file whose statistics of levels do not fit the type of a column; one byte is changed."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [1, 2], "other": [1, None]}), sink, store_schema=False)
    optional, required = b"\x02\x18\x05other", b"\x00\x18\x05other"
    assert sink.getvalue().count(optional) == 1
    return open_parquet(pa.BufferReader(sink.getvalue().replace(optional, required)))


def test_a_wrong_footer_does_not_end_the_process() -> None:
    """Arrow ends it in ``RowGroupMetaData.column``; connectors of other tenants share it."""
    ended = subprocess.run([sys.executable, "-c", HOSTILE], check=False, capture_output=True)
    assert (ended.returncode, ended.stderr) == (7, b"")


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


def field(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    """A column of an Iceberg table."""
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


PLAIN = pa.schema([field("id", pa.int64(), 1), field("text", pa.string(), 2)])
WITH_IDS = PLAIN.append(field("_row_id", pa.int64(), 2_147_483_540)).append(
    field("_last_updated_sequence_number", pa.int64(), 2_147_483_539)
)
LINEAGE = RowState(RowLineage(1000, 7))


def test_a_copy_has_row_ids_by_the_positions_in_its_source() -> None:
    """Over several row groups, of which one is not read."""
    rows = [{"id": n, "text": str(n)} for n in range(40)]
    source = written(pa.Table.from_pylist(rows, PLAIN), row_group_size=10)
    copy = copied(source, deleting(0, *range(10, 20), 39), LINEAGE)
    assert copy is not None
    expected = [n for n in range(1, 39) if not 10 <= n < 20]
    assert copy.read().to_pydict() == {
        "id": expected,
        "text": [str(n) for n in expected],
        "_row_id": [1000 + n for n in expected],
        "_last_updated_sequence_number": [7] * len(expected),
    }
    assert [int(f.metadata[b"PARQUET:field_id"]) for f in copy.schema_arrow] == [
        int(f.metadata[b"PARQUET:field_id"]) for f in WITH_IDS
    ]


def test_a_copy_of_a_copy_keeps_what_is_stored() -> None:
    """A null inherits: of a row that was new in a file with others."""
    rows = [
        {"id": 1, "text": "a", "_row_id": 5, "_last_updated_sequence_number": 2},
        {"id": 2, "text": "b", "_row_id": 6, "_last_updated_sequence_number": None},
        {"id": 3, "text": "c", "_row_id": None, "_last_updated_sequence_number": None},
        {"id": 4, "text": "d", "_row_id": 8, "_last_updated_sequence_number": 3},
    ]
    copy = copied(written(pa.Table.from_pylist(rows, WITH_IDS)), deleting(1), LINEAGE)
    assert copy is not None
    rest = copy.read(["id", "_row_id", "_last_updated_sequence_number"]).to_pylist()
    assert [tuple(r.values()) for r in rest] == [(2, 6, 7), (3, 1002, 7), (4, 8, 3)]
    assert copy.schema_arrow.names == WITH_IDS.names


def test_rows_without_row_ids_stay_without() -> None:
    """Of a file that no commit of version 3 has listed yet."""
    rows = [{"id": n, "text": "a"} for n in range(3)]
    source = written(pa.Table.from_pylist(rows, PLAIN))
    copy = copied(source, deleting(1), RowState(RowLineage(None, 4)))
    assert copy is not None
    assert copy.read(["_row_id"])["_row_id"].to_pylist() == [None, None]
    assert copy.read(["_last_updated_sequence_number"]).to_pydict() == {
        "_last_updated_sequence_number": [4, 4]
    }


def test_rows_that_were_deleted_before_are_left_out() -> None:
    """By their positions in the source, over row groups and parts of them."""
    rows = [{"id": n, "text": "a"} for n in range(40)]
    source = written(pa.Table.from_pylist(rows, PLAIN), row_group_size=16)
    state = RowState(RowLineage(0, 1), BitMap64([0, 15, 16, 31, 32, 39, 10**6]))
    copy = copied(source, deleting(5, 16), state)
    assert copy is not None
    expected = [n for n in range(40) if n not in {0, 5, 15, 16, 31, 32, 39}]
    assert copy.read(["_row_id"])["_row_id"].to_pylist() == expected
    rest = BitMap64(range(1, 40))
    assert copied(source, deleting(0), RowState(None, rest)) is None


def test_many_deleted_rows_are_marked_in_parts() -> None:
    """More rows than are in memory as positions at a time."""
    first, rows = 10**9, 3 * 2**20
    state = RowState(
        None, BitMap64([first - 1, first, first + 2**20, first + rows - 1, first + rows])
    )
    mask = np.zeros(rows, np.bool_)
    state.mark(mask, first)
    assert np.flatnonzero(mask).tolist() == [0, 2**20, rows - 1]


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([pa.field("id", pa.int64())]),
        pa.schema([field("id", pa.int64(), 1), field("_row_id", pa.int64(), 9)]),
        pa.schema([field("id", pa.int64(), 1), field("own", pa.int32(), 2_147_483_540)]),
    ],
    ids=["no field ids", "same name", "other type"],
)
def test_files_that_cannot_have_row_ids_are_not_copied(schema: pa.Schema) -> None:
    """Readers would not find the columns, or confuse them; the table has no name mapping."""
    source = written(pa.Table.from_pylist([{"id": 1}, {"id": 2}], schema))
    with pytest.raises(NotResolved) as caught:
        copied(source, deleting(1), LINEAGE)
    assert caught.value.reason == "file_form"
    assert copied(source, deleting(1)) is not None


PART = {"metadata": b"\x01\x00\x00", "value": b"\x00"}
SHREDDED = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("typed_value", pa.list_(pa.field("element", pa.struct([("value", pa.binary())])))),
    ]
)


def with_variants(
    schema: pa.Schema, rows: list[dict[str, Any]], *paths: tuple[str, ...], version: int = 1
) -> pq.ParquetFile:
    """A file with variants of a version of their encoding."""
    sink = io.BytesIO()
    stream = VariantFooter(_Kept(sink), paths)
    writer = pq.ParquetWriter(pa.PythonFile(stream, mode="w"), schema, store_schema=False)
    writer.write_table(pa.Table.from_pylist(rows, schema))
    stream.end(writer)
    mark = b"\x20\x13"  # the logical type, and its field with the version
    content = sink.getvalue().replace(mark + b"\1\0\0", mark + bytes([version, 0, 0]))
    return open_parquet(pa.BufferReader(content))


@pytest.mark.parametrize("state", [UNKNOWN, LINEAGE], ids=["plain", "row ids"])
def test_variants_are_copied_as_they_are(state: RowState) -> None:
    """Their bytes, nulls and marks, also in structs and of shredded ones; row ids come after."""
    schema = pa.schema(
        [
            *PLAIN,
            field("v", VARIANT_STORAGE, 3),
            field("in", pa.struct([field("w", VARIANT_STORAGE, 5)]), 4),
            field("parts", SHREDDED, 6),
        ]
    )
    rows = [
        {
            "id": n,
            "text": "a",
            "v": {"metadata": bytes([n]), "value": b"" if n else b"\x00" * 9},
            "in": None if n == 2 else {"w": None if n == 3 else {**PART, "value": bytes([n, 0])}},
            "parts": {
                "metadata": bytes([n]),
                "value": None,
                "typed_value": [{"value": bytes([n])}],
            },
        }
        for n in range(5)
    ]
    source = with_variants(schema, rows, ("v",), ("in", "w"), ("parts",))
    copy = copied(source, deleting(1), state)
    assert copy is not None
    kept = [row for row in rows if row["id"] != 1]
    assert copy.read(schema.names).to_pylist() == kept
    before, after = str(source.metadata.schema), str(copy.metadata.schema)
    assert after.count("(Variant(1))") == before.count("(Variant(1))") == 3
    columns = before.splitlines()[1 : before.splitlines().index("}")]
    assert after.splitlines()[1 : len(columns) + 1] == columns


@pytest.mark.parametrize("kind", ["in a list", "another version"])
def test_variants_of_another_form_are_not_copied(kind: str) -> None:
    """Those that no table of a connector has, and those of a newer encoding."""
    schema = PLAIN.append(field("v", VARIANT_STORAGE, 3))
    path: tuple[str, ...] = ("v",)
    version = 2
    rows: list[dict[str, Any]] = [{"id": n, "text": "a", "v": PART} for n in range(2)]
    if kind == "in a list":
        schema = PLAIN.append(field("v", pa.list_(pa.field("element", VARIANT_STORAGE)), 3))
        rows = [{**row, "v": [PART]} for row in rows]
        path, version = ("v", "list", "element"), 1
    source = with_variants(schema, rows, path, version=version)
    assert f"(Variant({version}))" in str(source.metadata.schema)
    with pytest.raises(NotResolved) as caught:
        copied(source, deleting(1), LINEAGE)
    assert caught.value.reason == "file_form"


def test_structs_like_variants_are_copied_as_structs() -> None:
    """Only the mark tells them apart."""
    schema = PLAIN.append(field("v", VARIANT_STORAGE, 3))
    rows = [{"id": n, "text": "a", "v": PART} for n in range(2)]
    copy = copied(written(pa.Table.from_pylist(rows, schema)), deleting(1), LINEAGE)
    assert copy is not None
    assert "Variant" not in str(copy.metadata.schema)


def test_states_are_compared_by_their_rows() -> None:
    """A copy is used again only for the same state."""
    lineage = RowLineage(0, 1)
    marked = RowState(lineage, BitMap64([1, 2]))
    assert marked == RowState(lineage, BitMap64([2, 1]))
    others = [RowState(), RowState(lineage), RowState(lineage, BitMap64([1])), UNKNOWN]
    assert all(other != marked for other in others)
    assert RowState(RowLineage(None, 1)) != RowState(RowLineage(0, 1))
