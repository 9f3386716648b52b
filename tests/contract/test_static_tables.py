"""Static tables of queries: which files of a table are read, and what their errors say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from connect.clock import SystemClock
from connect.config.location_policy import LocationPolicy
from connect.config.static_tables_policy import StaticTablesPolicy
from connect.errors import ConfigError, trace_of
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.records.transforms.sql.sql_transform import DECLARATION, SqlPlan
from connect.records.transforms.transform import typed_options
from worker.sql.static_tables import StaticTables

_CANARY = "canary-51aa07"
_ROWS = pa.table({"device": [_CANARY]})


@pytest.fixture
def catalog(sql_catalog_properties: Mapping[str, str]) -> Iterator[CatalogGateway]:
    """A catalog with the empty table ``geo.places``."""
    catalog = open_catalog("test", sql_catalog_properties)
    catalog.create(
        ("geo", "places"), Schema(NestedField(1, "device", StringType(), required=False))
    )
    yield catalog
    catalog.close()


def _tables(catalog: CatalogGateway, place: str, **policy: StaticTablesPolicy) -> StaticTables:
    options = {
        "columns": "device STRING",
        "query": "SELECT p.device FROM records r JOIN p ON p.device = r.device",
        "table.p": place,
    }
    typed = typed_options(DECLARATION.keys, options, families=DECLARATION.families)
    return StaticTables(SqlPlan.of(typed), catalog, SystemClock(), **policy)


def _refused(tables: StaticTables) -> str:
    with pytest.raises(ConfigError) as refused:
        tables.refresh()
    assert refused.value.code == "sql_table"
    messages = trace_of(refused.value)
    assert _CANARY not in messages
    return messages


def test_files_of_a_static_table_are_checked(catalog: CatalogGateway, tmp_path: Path) -> None:
    """Metadata may name any file: each must be below a location of the connector."""
    others = tmp_path / "others"
    others.mkdir()
    pq.write_table(_ROWS, others / "a.parquet")
    table = catalog.load(("geo", "places"))
    table.add_files([str(others / "a.parquet")])
    warehouse = str(catalog.config.properties["warehouse"])
    catalog.locations = LocationPolicy(local=(warehouse,))
    assert "others/a.parquet is not below a folder" in _refused(_tables(catalog, "geo.places"))
    catalog.locations = LocationPolicy(local=(warehouse, str(others)))
    tables = _tables(catalog, "geo.places")
    tables.refresh()
    assert tables.tables["p"].to_pydict() == _ROWS.to_pydict()


def test_static_tables_outside_the_operators_list_are_not_opened(
    catalog: CatalogGateway, tmp_path: Path
) -> None:
    """Tables and paths: the error is the same whether they exist."""
    policy = StaticTablesPolicy((), LocationPolicy(()))
    pq.write_table(_ROWS, tmp_path / "a.parquet")
    for place in ("geo.places", "geo.nowhere"):
        assert "is not among the static tables" in _refused(_tables(catalog, place, policy=policy))
    for name in ("a.parquet", "b.parquet"):
        tables = _tables(catalog, str(tmp_path / name), policy=policy)
        assert "is not among the static tables" in _refused(tables)


def test_an_error_shows_no_line_of_a_file(catalog: CatalogGateway, tmp_path: Path) -> None:
    """An invalid Parquet file, and files with different columns, are named."""
    file = tmp_path / "secret.txt"
    file.write_text(_CANARY * 20)
    assert "cannot be read" in _refused(_tables(catalog, str(file)))
    folder = tmp_path / "mixed"
    folder.mkdir()
    pq.write_table(pa.table({_CANARY: ["x"]}), folder / "a.parquet")
    pq.write_table(pa.table({_CANARY: [{"x": 1}]}), folder / "b.parquet")
    assert "cannot be read" in _refused(_tables(catalog, str(folder)))
