"""Connectors that write to object stores, and a worker that is killed meanwhile."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from connect.gateways.catalog_properties import client_config
from tests.support.object_stores import Azurite, FakeGcs, ObjectStore, S3Proxy, started
from tests.support.running_stack import RunningStack, numbered, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java]
COUNT = 2000


def _stores(folder: Path) -> list[ObjectStore]:
    """S3 with a private certificate authority, and those that are installed."""
    found: list[ObjectStore] = [S3Proxy(folder, has_tls=True)]
    if shutil.which("azurite-blob"):
        found.append(Azurite(folder))
    if shutil.which("fake-gcs-server"):
        found.append(FakeGcs(folder))
    return found


def test_every_record_is_there_once_after_a_kill(running: RunningStack, tmp_path: Path) -> None:
    """Half of the records are committed, the worker is killed with the others on their way."""
    with contextlib.ExitStack() as servers:
        connectors = {}
        for store in _stores(tmp_path):
            servers.enter_context(started(store))
            name = unique_name(type(store).__name__.lower())
            properties = {
                **running.stack.catalog_properties,
                **store.properties,
                "warehouse": f"{store.warehouse}/{name}",
            }
            if isinstance(store, S3Proxy):
                properties["ssl.cabundle"] = str(store.ca_file)
            topic = running.topic(name, partitions=2)
            table = f"stores.{name.replace('-', '_')}"
            running.produce(topic, *numbered(0, COUNT // 2))
            config = {
                **running.connector(topics=topic, iceberg__tables=table),
                **{f"iceberg.catalog.{key}": value for key, value in properties.items()},
                "iceberg.tables.auto-create-enabled": "true",
            }
            running.create(name, config)
            opened = load_catalog("iceberg", **client_config(properties).properties, type="sql")
            connectors[name] = (topic, table, opened)
        for name, (_, table, opened) in connectors.items():
            running.rows(table, COUNT // 2, name, opened)
        for topic, _, _ in connectors.values():
            running.produce(topic, *numbered(COUNT // 2, COUNT // 2), partition=1)
        running.child("worker").kill()
        for name, (_, table, opened) in connectors.items():
            rows = running.rows(table, COUNT, name, opened)
            assert pick(rows, "id") == pick(numbered(0, COUNT), "id")
            location = opened.load_table(table).location()
            assert location.startswith(str(opened.properties["warehouse"]))
        running.delete(*connectors)
