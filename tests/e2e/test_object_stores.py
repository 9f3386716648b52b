"""A connector that writes to each kind of object store, through a whole node.

The default suite has the S3 server of ``test_catalogs.py``, and signatures that end in
``tests/contract/test_expiring_logins.py``.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog, load_catalog

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

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.matrix]
KINDS = (S3Proxy, Azurite, FakeGcs)
COUNT = 1000
SIGNATURE_LIFE = dt.timedelta(seconds=15)


@dataclass(frozen=True)
class StoredTable:
    """A table in a store, written by a connector of its own.

    Attributes:
        name: of the connector.
        table: the table.
        folder: the location below which it must be.
        catalog: opened, to read it.
    """

    name: str
    table: str
    folder: str
    catalog: Catalog


@pytest.fixture(scope="module")
def stored(
    running: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[type[ObjectStore], StoredTable | str]]:
    """A table in each store, or why there is none: its server is not installed.

    The worker is killed once, while the connectors write to all stores.
    """
    made: dict[type[ObjectStore], StoredTable | str] = {}
    topic = running.topic("stores", partitions=2)
    running.produce(topic, *numbered(0, COUNT // 2))
    with ExitStack() as closing:
        for kind in KINDS:
            folder = tmp_path_factory.mktemp(kind.__name__)
            try:
                store = closing.enter_context(started(kind(folder)))
            except pytest.skip.Exception as skipped:
                made[kind] = str(skipped)
            else:
                made[kind] = _connect(running, store, topic)
        tables = [each for each in made.values() if isinstance(each, StoredTable)]
        for each in tables:
            running.rows(each.table, COUNT // 2, each.name, each.catalog)
        more = [{**record, "more": 1.5} for record in numbered(COUNT // 2, COUNT // 2)]
        running.produce(topic, *more, partition=1)
        running.child("worker").kill()
        yield made
        running.delete(*(each.name for each in tables))


def _connect(running: RunningStack, store: ObjectStore, topic: str) -> StoredTable:
    name = unique_name("store")
    table = f"stores.{name.replace('-', '_')}"
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
    running.create(name, config)
    opened = load_catalog("iceberg", **client_config(properties).properties, type="sql")
    return StoredTable(name, table, properties["warehouse"], opened)


@pytest.mark.parametrize("kind", KINDS)
def test_every_record_is_in_the_store_once(
    running: RunningStack,
    stored: dict[type[ObjectStore], StoredTable | str],
    kind: type[ObjectStore],
) -> None:
    """Auto-create, a new column and a killed worker; files and metadata are in the store."""
    each = stored[kind]
    if isinstance(each, str):
        pytest.skip(each)
    rows = running.rows(each.table, COUNT, each.name, each.catalog)
    assert pick(rows, "id") == pick(numbered(0, COUNT), "id")
    assert sum(row["more"] == 1.5 for row in rows) == COUNT // 2
    table = each.catalog.load_table(each.table)
    assert table.metadata_location.startswith(each.folder)
    paths = table.inspect.files()["file_path"].to_pylist()
    assert all(path.startswith(f"{table.location()}/data/") for path in paths)


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
    assert sum("table refused, it is loaded again" in line for line in lines) >= 2
    assert not any("task restarts" in line for line in lines)
