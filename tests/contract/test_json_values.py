"""JSON whose values take much more memory than its text is refused before it is parsed."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.errors import CommitRefused
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.catalog.catalog import open_catalog
from tests.support.hostile_server import HostileServer, answer

BYTES_MAX = 16 * 2**20
MEMORY_BYTES_MAX = 4 * BYTES_MAX
LISTS = b'{"x":[' + b"[]," * (BYTES_MAX // 3 - 10) + b"[]]}"
CONFIG = b'{"defaults": {}, "overrides": {}}'
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture(autouse=True)
def limited_process() -> Iterator[None]:
    """The limits of the process are low."""
    install(AccessPolicy(answer_bytes_max=BYTES_MAX))
    yield
    install(AccessPolicy())


@contextmanager
def bounded_memory() -> Iterator[None]:
    """What is done within holds little memory at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("is_compressed", [False, True])
@pytest.mark.parametrize("part", ["/config", "/tables/t"])
def test_an_answer_of_a_catalog(part: str, is_compressed: bool) -> None:
    """Its own table is refused."""
    body, headers = (
        (gzip.compress(LISTS, 1), ["content-encoding: gzip"])
        if is_compressed
        else (
            LISTS,
            [],
        )
    )
    server = HostileServer(
        lambda request: answer(body, *headers) if part in request else answer(CONFIG)
    )
    try:
        with (
            bounded_memory(),
            pytest.raises(CommitRefused) as refused,
            closing(open_catalog("c", {"type": "rest", "uri": server.url})) as catalog,
        ):
            catalog.load(("db", "t"))
    finally:
        server.close()
    assert refused.value.code == "catalog_answer_too_large"


@pytest.mark.parametrize("suffix", [".metadata.json", ".gz.metadata.json"])
def test_a_metadata_file(suffix: str, tmp_path: Path) -> None:
    """Its table is refused; a file with ordinary values of nearly that size is read."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    properties = {"type": "sql", "uri": uri, "warehouse": f"file://{tmp_path}/warehouse"}
    with closing(open_catalog("c", properties)) as catalog:
        metadata = json.loads(catalog.create(("db", "t"), SCHEMA).metadata.model_dump_json())
        long = json.dumps(
            {**metadata, "properties": {f"p{each}": "x" * 25 for each in range(300_000)}}
        ).encode()
        path = tmp_path / f"warehouse/m{suffix}"
        with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
            database.execute("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{path}",))

        def load(text: bytes) -> None:
            path.write_bytes(gzip.compress(text, 1) if suffix.startswith(".gz") else text)
            catalog.load(("db", "t"))

        with bounded_memory(), pytest.raises(CommitRefused) as refused:
            load(LISTS)
        assert refused.value.code == "metadata_too_large"
        load(long)
