"""Static tables whose files are much smaller than their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from connect.clock import SystemClock
from connect.errors import ConfigError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.storage.parquet_dataset import ParquetFiles, bounded_table
from connect.records.transforms.sql.sql_transform import DECLARATION, SqlPlan
from connect.records.transforms.transform import typed_options
from worker.sql.static_tables import StaticTables

ROWS = 40_000
TEXT = "x" * 8_192
LIMIT = 8 * 2**20


def test_rows_are_not_read_beyond_the_limit(tmp_path: Path) -> None:
    """One text in each row takes a few bytes of the file, and 300 MiB in memory."""
    path = tmp_path / "small.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), [TEXT])
    pq.write_table(pa.table({"text": texts}), path, store_schema=False)
    size = path.stat().st_size
    assert size < 2**20
    files = ParquetFiles(fs.LocalFileSystem(), ((str(path), size, None),))
    before = pa.default_memory_pool().max_memory()
    assert files.read(LIMIT) is None
    assert pa.default_memory_pool().max_memory() - before < 32 * 2**20


def test_an_iceberg_table_is_not_read_beyond_the_limit(
    sql_catalog_properties: Mapping[str, str],
) -> None:
    """Nor does it decode its texts before; a smaller table has plain columns."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), [TEXT])
    with closing(open_catalog("c", sql_catalog_properties)) as catalog:
        schema = Schema(NestedField(1, "device", StringType(), required=False))
        table = catalog.create(("geo", "places"), schema)
        table.append(pa.table({"device": ["a", None, "b"]}))
        read = tables_of(catalog, LIMIT)
        assert read.refresh()
        rows = read.tables["p"]
        assert (rows.column("device").to_pylist(), rows.schema.field(0).type) == (
            ["a", None, "b"],
            pa.string(),
        )
        (task,) = table.scan().plan_files()
        path = task.file.file_path.removeprefix("file://")
        column = pa.field("device", texts.type, metadata={"PARQUET:field_id": "1"})
        pq.write_table(pa.table([texts], pa.schema([column])), path, store_schema=False)
        before = pa.default_memory_pool().max_memory()
        with pytest.raises(ConfigError, match="allows 8388608"):
            tables_of(catalog, LIMIT).refresh()
        assert pa.default_memory_pool().max_memory() - before < 32 * 2**20


def tables_of(catalog: CatalogGateway, limit: int) -> StaticTables:
    """The static tables of a query."""
    options = {
        "columns": "device STRING",
        "query": "SELECT p.device FROM records r JOIN p ON p.device = r.device",
        "table.p": "geo.places",
        "tables.max.bytes": str(limit),
    }
    typed = typed_options(DECLARATION.keys, options, families=DECLARATION.families)
    return StaticTables(SqlPlan.of(typed), catalog, SystemClock())


@pytest.mark.parametrize("limit", [100, 7_999])
def test_batches_stop_at_the_limit(limit: int) -> None:
    """The last batch is not asked for."""
    made = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(10):
            made.append(number)
            yield pa.RecordBatch.from_pydict({"a": pa.array(range(100), pa.int64())})

    schema = pa.schema({"a": pa.int64()})
    assert bounded_table(schema, batches(), limit) is None
    assert len(made) == limit // 800 + 1
    table = bounded_table(schema, batches(), 8_000)
    assert (table.num_rows, table.column("a").num_chunks) == (1_000, 1)
