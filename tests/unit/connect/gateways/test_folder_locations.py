"""Where tables without a catalog may lie: the operator's grants and roots hold for each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect.config.invalid_config import InvalidConfigError
from connect.config.location_policy import LocationPolicy
from connect.config.table_formats import (
    AGGREGATE,
    AGGREGATE_LOCATION,
    DELTA,
    FOLDER_FORMATS,
    PARQUET,
)
from connect.errors import CommitRefused
from connect.gateways.catalog_properties import FOLDER_OF_TABLE, FOLDER_ROOTS
from connect.gateways.storage.folder_locations import FolderLocations
from connect.validation.parse import parse


@pytest.mark.parametrize("table_format", FOLDER_FORMATS)
def test_a_table_is_a_folder_below_the_root(table_format: str, tmp_path: Path) -> None:
    """Its own location, where one is set, replaces that."""
    properties = {
        FOLDER_ROOTS[table_format]: f"file://{tmp_path}/lake/",
        f"{FOLDER_OF_TABLE}db.b": f"file://{tmp_path}/own",
    }
    locations = FolderLocations(table_format, properties)
    assert locations.of(("db", "a")) == f"file://{tmp_path}/lake/db/a"
    assert locations.of(("db", "b")) == f"file://{tmp_path}/own"
    for name in ("..", "a/b", ""):
        with pytest.raises(CommitRefused) as caught:
            locations.of(("db", name))
        assert caught.value.code == "table_name"


@pytest.mark.parametrize("table_format", FOLDER_FORMATS)
def test_locations_that_are_not_granted_are_refused(table_format: str, tmp_path: Path) -> None:
    """Also through a link, and for the location of one table."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/link").symlink_to(tmp_path / "theirs")
    policy = LocationPolicy(granted=(str(tmp_path / "ours"),), local=(str(tmp_path),))
    properties = {
        FOLDER_ROOTS[table_format]: f"file://{tmp_path}/ours",
        f"{FOLDER_OF_TABLE}db.b": f"file://{tmp_path}/theirs",
        f"{FOLDER_OF_TABLE}db.c": f"file://{tmp_path}/ours/link/c",
        f"{FOLDER_OF_TABLE}db.d": "s3://bucket/d",
    }
    locations = FolderLocations(table_format, properties, policy)
    assert locations.of(("db", "a"))
    for name in "bcd":
        with pytest.raises(CommitRefused) as caught:
            locations.of(("db", name))
        assert caught.value.code == "location_not_granted"


@pytest.mark.parametrize("table_format", [DELTA, PARQUET])
def test_tenants_locations_are_checked_when_a_connector_is_created(table_format: str) -> None:
    """Local folders and internal hosts, for all tables and for one."""
    node = {"bootstrap.servers": "b:1", "icefloe.rest.users.file": "/users.yaml"}
    root, own = FOLDER_FORMATS[table_format], "iceberg.table.shop.orders.location"
    raw = {
        "name": "orders",
        "connector.class": "IcebergSink",
        "topics": "orders",
        "iceberg.tables": "shop.orders",
        "icefloe.format": table_format,
        root: "s3://bucket/lake",
        "iceberg.catalog.s3.access-key-id": "a",
        "iceberg.catalog.s3.secret-access-key": "b",
    }
    assert parse(raw, node=node).table_format == table_format
    for key, value in (
        (root, "/etc"),
        (own, "/etc/tables"),
        ("iceberg.catalog.s3.endpoint", "http://169.254.169.254"),
    ):
        with pytest.raises(InvalidConfigError) as caught:
            parse({**raw, key: value}, node=node)
        assert list(caught.value.errors) == [key]


def test_the_location_of_a_tenants_aggregates_is_checked() -> None:
    """It is a local folder or a store, as that of tables is."""
    node = {"bootstrap.servers": "b:1", "icefloe.rest.users.file": "/users.yaml"}
    raw = {
        "name": "counts",
        "connector.class": "IcebergSink",
        "topics": "orders",
        "icefloe.format": AGGREGATE,
        AGGREGATE_LOCATION: "s3://bucket/state",
        "icefloe.aggregate.columns": "ts TIMESTAMP",
        "icefloe.aggregate.time-field": "ts",
        "icefloe.aggregate.window": "1 minute",
        "icefloe.aggregate.watermark": "1 minute",
        "icefloe.aggregate.functions": "n=count(*)",
        "icefloe.aggregate.topic": "counts",
        "iceberg.catalog.s3.access-key-id": "a",
        "iceberg.catalog.s3.secret-access-key": "b",
    }
    node["icefloe.output.topics.default"] = "counts"
    assert parse(raw, node=node).aggregation
    for key, value in (
        (AGGREGATE_LOCATION, "/etc"),
        ("iceberg.catalog.s3.endpoint", "http://169.254.169.254"),
    ):
        with pytest.raises(InvalidConfigError) as caught:
            parse({**raw, key: value}, node=node)
        assert list(caught.value.errors) == [key]
