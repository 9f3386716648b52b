"""A connector that writes to each kind of object store, through a whole node."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from connect.gateways.catalog_properties import client_config
from tests.support.fakes.rest_catalog import MemoryCatalogServer
from tests.support.object_stores import (
    AZURITE_ACCOUNT,
    Azurite,
    FakeGcs,
    ObjectStore,
    S3Proxy,
    started,
)
from tests.support.running_stack import RunningStack, numbered, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
COUNT = 1000
SIGNATURE_LIFE = dt.timedelta(seconds=15)


@pytest.fixture(params=[S3Proxy, Azurite, FakeGcs])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """Each kind of store; a server that is not installed skips the test."""
    kind: type[ObjectStore] = request.param
    with started(kind(tmp_path)) as found:
        yield found


def test_every_record_is_in_the_store_once(running: RunningStack, store: ObjectStore) -> None:
    """Auto-create, a new column and a killed worker; files and metadata are in the store."""
    name = unique_name("store")
    table = f"stores.{name.replace('-', '_')}"
    topic = running.topic(name, partitions=2)
    properties = {
        **running.stack.catalog_properties,
        **store.properties,
        "warehouse": f"{store.warehouse}/{name}",
    }
    config = {
        **running.connector(topics=topic, iceberg__tables=table),
        **{f"iceberg.catalog.{key}": value for key, value in properties.items()},
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
    }
    running.produce(topic, *numbered(0, COUNT // 2))
    running.create(name, config)
    opened = load_catalog("iceberg", **client_config(properties).properties, type="sql")
    running.rows(table, COUNT // 2, name, opened)
    more = [{**record, "more": 1.5} for record in numbered(COUNT // 2, COUNT // 2)]
    running.produce(topic, *more, partition=1)
    running.child("worker").kill()
    rows = running.rows(table, COUNT, name, opened)
    assert pick(rows, "id") == pick(numbered(0, COUNT), "id")
    assert sum(row["more"] == 1.5 for row in rows) == COUNT // 2
    made = opened.load_table(table)
    assert made.metadata_location.startswith(properties["warehouse"])
    paths = made.inspect.files()["file_path"].to_pylist()
    assert all(path.startswith(f"{made.location()}/data/") for path in paths)
    running.delete(name)


def test_vended_signatures_that_end_are_renewed(running: RunningStack, tmp_path: Path) -> None:
    """Azurite refuses a signature that has ended; the batch is repeated with a new one."""
    name, table = unique_name("vended"), "stores.vended"
    signatures: list[str] = []

    def vend() -> dict[str, str]:
        signatures.append(Azurite.signature(SIGNATURE_LIFE))
        return {f"adls.sas-token.{AZURITE_ACCOUNT}.dfs.core.windows.net": signatures[-1]}

    with started(Azurite(tmp_path)) as store:
        assert isinstance(store, Azurite)
        catalog = MemoryCatalogServer(f"{store.warehouse}/{name}", vend=vend)
        catalog.start()
        try:
            properties = {**catalog.properties, **store.address}
            topic = running.topic(name)
            config = {
                **running.connector(topics=topic, iceberg__tables=table),
                **{f"iceberg.catalog.{key}": value for key, value in properties.items()},
                "iceberg.tables.auto-create-enabled": "true",
            }
            running.produce(topic, *numbered(0, 100))
            running.create(name, config)
            opened = load_catalog("iceberg", **client_config(properties).properties, type="rest")
            running.rows(table, 100, name, opened)
            for count in (200, 300):
                time.sleep(SIGNATURE_LIFE.total_seconds() + 1)  # no task has a signature that holds
                running.produce(topic, *numbered(count - 100, 100))
                rows = running.rows(table, count, name, opened)
                assert pick(rows, "id") == pick(numbered(0, count), "id")
            running.delete(name)
        finally:
            catalog.close()
    logs = running.logs()
    assert not any(signature in log for log in logs.values() for signature in signatures)
    [worker] = [text for file, text in logs.items() if file.endswith("/worker.log")]
    lines = [line for line in worker.splitlines() if f'"{name}"' in line]
    assert sum("table is loaded again" in line for line in lines) >= 2
    assert not any("task restarts" in line for line in lines)
