"""What records may name and contain: each is in its table, or a dead letter of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform
from pyiceberg.types import (
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, IcefloeError, RecordError
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.catalog_properties import FOLDER_ROOTS
from connect.gateways.storage.folder_locations import FolderLocations
from connect.model.records import ConnectSchema, SinkRecord
from connect.records.routing import Router
from connect.records.tables.schema_evolution import changes
from connect.records.tables.table_creation import table_for
from tests.differential.support import config
from tests.support.unusable_tables import OneTableRefused, Task, rows_of

GROW = {
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
}
ALL = {"errors.tolerance": "all", **GROW}
DYNAMIC = {
    "iceberg.tables": None,
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "kind",
}
BAD_NAMES: tuple[str, ...] = (
    "rep.ha#sh",
    "rep.q?x",
    "rep.p%41",
    "rep.a/b",
    "rep.a;b",
    "nonamespace",
    "5",
)
BAD_NAMES += (f"rep.{'x' * 300}", f"{'y.' * 130}t", "a.b\0c", "a.b\x85", "a. b", "rep..t", ".t")
ITEM = StructType(NestedField(4, "sku", StringType(), required=False))


@pytest.fixture
def catalog(
    sql_catalog_properties: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OneTableRefused]:
    """Tables on SQLite and a local folder, with all relative locations inside."""
    monkeypatch.chdir(tmp_path)
    opened = open_catalog("iceberg", sql_catalog_properties)
    opened.close()
    gateway = OneTableRefused("iceberg", opened.config)
    yield gateway
    gateway.close()


def values(*records: dict[str, Any]) -> list[bytes | None]:
    """Records as JSON."""
    return [json.dumps(record).encode() for record in records]


@pytest.mark.parametrize("name", [*BAD_NAMES, "a.\ud800"])
def test_a_record_that_cannot_name_a_table_is_a_dead_letter(
    catalog: OneTableRefused, name: str
) -> None:
    """The others get their rows; without tolerance the task fails and names the record."""
    records = values({"id": 1, "kind": "rep.good"}, {"id": 2, "kind": name})
    batch = Task(catalog, config(**DYNAMIC, **ALL)).run(values=records)
    assert rows_of(batch) == {"good": 1}
    assert [letter.record.offset for letter in batch.dead_letters] == [1]
    with pytest.raises(RecordError) as refused:
        Task(catalog, config(**DYNAMIC, **GROW)).run(values=records)
    at = refused.value.coordinates
    assert (at["topic"], at["partition"], at["offset"]) == ("t", 0, 1)


PARTS = st.sampled_from(["rep", "a", "b", "a b", "é", "#", "?", "%", "%41", "A", "/", "\\", ";"])
ROUTES = st.lists(
    st.lists(st.one_of(PARTS, st.text(max_size=3)), max_size=2).map("".join), min_size=1, max_size=4
).map(".".join)


@settings(max_examples=150)
@given(st.lists(ROUTES, min_size=2, max_size=8))
@example(["rep.ha", "rep.ha#sh", "rep.ha?sh"])
@example(["rep.a", "rep.a/b", "rep.a.b"])
def test_no_table_lies_in_another(names: list[str]) -> None:
    """Tables of a catalog and of folders have separate locations."""
    for tables_at in (_in_catalog, _in_folders):
        places = {name: place for name in names if (place := tables_at(name)) is not None}
        distinct = {name.lower(): place for name, place in places.items()}
        for one, other in itertools.permutations(distinct.values(), 2):
            assert not f"{one}/".startswith(f"{other}/")


def _in_catalog(name: str) -> str | None:
    """Return the path that PyIceberg's SQL catalog and its clients use for a table."""
    record = SinkRecord("t", 0, 0, None, value={"kind": name, "id": 1})
    try:
        (routed,) = Router(CATALOG).route(record)
        *namespace, table = table_for(routed, record, CATALOG).identifier
    except RecordError:
        return None
    return PyArrowFileIO.parse_location(f"hdfs://lake/w/{'.'.join(namespace)}/{table}")[2]


def _in_folders(name: str) -> str | None:
    record = SinkRecord("t", 0, 0, None, value={"kind": name, "id": 1})
    try:
        (routed,) = Router(FOLDERS).route(record)
        table_for(routed, record, FOLDERS)
        return FolderLocations("delta", {FOLDER_ROOTS["delta"]: "s3://lake/w"}).of(
            routed.split(".")
        )
    except (RecordError, CommitRefused):
        return None


def _folders() -> ConnectorConfig:
    catalog = {"iceberg.catalog.type": None, "iceberg.catalog.uri": None}
    place = {"icefloe.format": "delta", "icefloe.delta.location": "s3://lake/w"}
    return config(**{**DYNAMIC, **ALL, **catalog, **place})


CATALOG, FOLDERS = config(**DYNAMIC, **ALL), _folders()


@pytest.mark.parametrize("kind", ["list", "map"])
def test_a_field_of_an_element_is_added(catalog: OneTableRefused, kind: str) -> None:
    """Also inside lists and values of maps."""
    inner = (
        ListType(3, ITEM, element_required=False)
        if kind == "list"
        else MapType(2, StringType(), 3, ITEM, value_required=False)
    )
    items = NestedField(1, "items", inner, required=False)
    catalog.create(("db", "t1"), Schema(items))
    new: Any = {"sku": "y", "qty": 2}
    record = {"items": [new] if kind == "list" else {"k": new}}
    batch = Task(catalog, config(**ALL)).run(values=values(record))
    assert rows_of(batch) == {"t1": 1}
    name = "items.element.qty" if kind == "list" else "items.value.qty"
    assert catalog.load(("db", "t1")).schema().find_field(name).field_type == LongType()


def test_a_new_field_with_the_name_of_a_partition_field_is_refused(
    catalog: OneTableRefused,
) -> None:
    """As at the creation of the table; Java could no longer load it."""
    stamp = NestedField(1, "ts", TimestamptzType(), required=False)
    spec = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"))
    catalog.create(("db", "t1"), Schema(stamp), spec)
    given_ = values({"ts": 0}, {"ts": 0, "ts_day": 5})
    batch = Task(catalog, config(**ALL)).run(values=given_)
    assert rows_of(batch) == {"t1": 1}
    assert [(d.record.offset, d.error.code) for d in batch.dead_letters] == [(1, "partition_spec")]
    assert catalog.load(("db", "t1")).schema().column_names == ["ts"]


EMPTY = ConnectSchema("struct")
TEXT = ConnectSchema("string")


@pytest.mark.parametrize(
    "kind",
    [
        EMPTY,
        ConnectSchema("array", value_schema=EMPTY),
        ConnectSchema("map", key_schema=TEXT, value_schema=EMPTY),
        ConnectSchema("struct", fields=(("x", ConnectSchema("array", value_schema=EMPTY)),)),
    ],
    ids=["struct", "list", "map", "nested"],
)
def test_an_empty_struct_is_refused(kind: ConnectSchema) -> None:
    """At creation and at evolution, at any depth: no file can contain such a column."""
    schema = ConnectSchema("struct", fields=(("new", kind),))
    record = SinkRecord("t", 0, 0, None, value={}, value_schema=schema)
    connector = config(**ALL)
    for call in (
        lambda: changes(Schema(NestedField(1, "id", LongType())), record, connector),
        lambda: table_for("db.t1", record, connector),
    ):
        with pytest.raises(IcefloeError) as refused:
            call()
        assert refused.value.code == "unsupported_type"
