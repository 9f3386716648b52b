"""An object store that refuses the files of one table of a task, and takes those of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.errors import RetriableError
from connect.gateways.catalog.catalog import open_catalog
from tests.support.faulty_store import FaultyStore
from tests.support.stack import S3Server
from tests.support.unusable_tables import (
    LETTERS,
    NAMES,
    SCHEMA,
    TOLERANT,
    OneTableRefused,
    Task,
    named,
    rows_of,
)


@pytest.fixture
def store(s3_server: S3Server) -> Iterator[FaultyStore]:
    """A proxy before the S3 API."""
    running = FaultyStore(s3_server.endpoint)
    yield running
    running.close()


@pytest.fixture
def catalog(
    sql_catalog_properties: dict[str, str], s3_server: S3Server, store: FaultyStore, tmp_path: Path
) -> Iterator[OneTableRefused]:
    """Three tables in the store."""
    properties = {
        **sql_catalog_properties,
        **s3_server.properties,
        "s3.endpoint": store.uri,
        "warehouse": f"{s3_server.warehouse}/{tmp_path.name}",
    }
    opened = open_catalog("iceberg", properties)
    gateway = OneTableRefused("iceberg", opened.config)
    opened.close()
    for name in NAMES:
        gateway.create(name.split("."), SCHEMA)
    yield gateway
    gateway.close()


@pytest.mark.parametrize("operation", ["put", "head"])
def test_a_store_that_answers_403_for_one_table(
    catalog: OneTableRefused, store: FaultyStore, operation: str
) -> None:
    """The table is named and retried; where configured, its records become dead letters."""
    store.fail(operation, "refused:403", path="/bad/data/")
    for tolerance in ({}, TOLERANT):
        with pytest.raises(RetriableError) as refused:
            Task(catalog, named(**tolerance)).run("good1", "bad")
        assert refused.value.code == "table_not_writable"
        assert refused.value.coordinates["table"] == "db.bad"
    assert store.met
    task = Task(catalog, named(**LETTERS))
    batch = task.run("good1", "bad", "good2")
    assert rows_of(batch) == {"good1": 1, "good2": 1}
    assert [d.error.code for d in batch.dead_letters] == ["table_not_writable"]
    store.heal()
    assert rows_of(Task(catalog, named()).run("good1", "bad")) == {"bad": 1, "good1": 1}
