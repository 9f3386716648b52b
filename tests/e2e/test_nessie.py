"""A connector that writes to Project Nessie."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from connect.gateways.catalog_properties import client_config
from tests.support.nessie import Nessie, newer_java
from tests.support.object_stores import S3Proxy, started
from tests.support.running_stack import RunningStack, coordinator_of, numbered, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java, pytest.mark.matrix]
COUNT = 1000


def test_nessie_commits_two_tables_together(running: RunningStack, tmp_path: Path) -> None:
    """Every record once after a kill; the floor is in the property, as Nessie has no tags."""
    newer_java()
    with started(S3Proxy(tmp_path)) as store:
        assert isinstance(store, S3Proxy)
        nessie = Nessie(tmp_path, store)
        try:
            nessie.start()
            _write_and_read(running, nessie)
        finally:
            nessie.stop()


def _write_and_read(running: RunningStack, nessie: Nessie) -> None:
    name = unique_name("nessie")
    topic = running.topic(name, partitions=2)
    tables = ("shop.orders", "shop.copies")
    running.produce(topic, *numbered(0, COUNT // 2))
    config = {
        **running.connector(topics=topic, iceberg__tables=",".join(tables)),
        **{f"iceberg.catalog.{key}": value for key, value in nessie.properties.items()},
        "iceberg.catalog.multi-table-commit": "true",
        "iceberg.tables.auto-create-enabled": "true",
    }
    running.create(name, config)
    given = client_config(nessie.properties).properties
    opened = load_catalog("iceberg", **given, type="rest")
    for table in tables:
        running.rows(table, COUNT // 2, name, opened)
    running.produce(topic, *numbered(COUNT // 2, COUNT // 2), partition=1)
    coordinator_of(running, name).kill()
    for table in tables:
        rows = running.rows(table, COUNT, name, opened)
        assert pick(rows, "id") == pick(numbered(0, COUNT), "id")
        metadata = opened.load_table(table).metadata
        assert len(metadata.snapshots) == 1  # the documentation says so
        assert set(metadata.refs) == {"main"}
        assert any(key.startswith("icefloe.offsets.") for key in metadata.properties)
    running.delete(name)
