"""Answers of servers that a tenant names are limited in size and time."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import LongType, NestedField

from connect.errors import CommitRefused, CommitStateUnknown, IcefloeError, RetriableError
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.schema_registry.registry_client import SchemaRegistry
from tests.support.hostile_server import (
    DRIPS_MAX,
    SENT_BYTES_MAX,
    HostileServer,
    answer,
    bomb,
    dripping,
    endless,
    head,
)

Pieces = Iterator[bytes] | list[bytes]
BYTES_MAX = 2**20
BOMB_BYTES = 128 * 2**20
MEMORY_BYTES_MAX = 48 * 2**20
CONFIG = answer(b'{"defaults": {}, "overrides": {}}')
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
METADATA = new_table_metadata(
    SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://lake/db/t"
).model_dump_json()
TABLE = f'{{"metadata-location": "s3://lake/db/t/m.json", "metadata": {METADATA}, "config": {{}}}}'


@pytest.fixture(autouse=True)
def limited_process() -> Iterator[None]:
    """The limits of the process are low."""
    install(AccessPolicy(answer_bytes_max=BYTES_MAX, answer_ms_max=1_000))
    yield
    install(AccessPolicy())


def bomb_of(times: int) -> list[bytes]:
    """A body that was compressed so many times."""
    return bomb(BOMB_BYTES, times=times, encoding=", ".join(["gzip"] * times))


@pytest.fixture(scope="module", autouse=True)
def made_bombs() -> None:
    """They are made before memory is measured."""
    for times in (1, 2, 3):
        bomb_of(times)


@contextmanager
def server_of(respond: Callable[[str], Pieces]) -> Iterator[HostileServer]:
    """A server that a tenant names; at the end it has no connection that is still read."""
    server = HostileServer(respond)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def bounded_memory(bytes_max: int = MEMORY_BYTES_MAX) -> Iterator[None]:
    """What is done within holds little memory at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < bytes_max
    finally:
        tracemalloc.stop()


def catalog_of(server: HostileServer, **properties: str) -> CatalogGateway:
    """A REST catalog of this server."""
    rest = {"type": "rest", "uri": server.url, "rest.client.socket-timeout-ms": "2000"}
    return open_catalog("c", {**rest, **properties})


def load(server: HostileServer, **properties: str) -> None:
    """Load a table."""
    with closing(catalog_of(server, **properties)) as catalog:
        catalog.load(("db", "t"))


def hostile_at(part: str, pieces: Callable[[], Pieces]) -> Callable[[str], Pieces]:
    """Answer as a catalog, but for the requests whose line contains ``part``."""

    def respond(request: str) -> Pieces:
        if part in request:
            return pieces()
        return CONFIG if "/config" in request else answer(TABLE.encode())

    return respond


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(
    ("part", "status"),
    [("/config", "200 OK"), ("/tables/t", "200 OK"), ("/tables/t", "500 Error"), ("/oauth", "200")],
)
def test_an_endless_answer_of_a_catalog_ends(part: str, status: str, is_chunked: bool) -> None:
    """Its own table is refused, with the limit and the setting in the message."""
    hostile = hostile_at(part, lambda: endless(status=status, is_chunked=is_chunked))
    login = {"credential": "a:b"} if part == "/oauth" else {}
    with server_of(hostile) as server, bounded_memory(), pytest.raises(CommitRefused) as refused:
        load(server, **login)
    assert server.sent_bytes < SENT_BYTES_MAX
    assert refused.value.code == "catalog_answer_too_large"
    assert f"more than {BYTES_MAX} bytes" in refused.value.message
    assert "icefloe.catalog.answer.bytes.max" in refused.value.message
    assert refused.value.coordinates == ({"table": "db.t"} if "tables" in part else {})


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("part", ["/config", "/tables/t"])
def test_a_compressed_answer_is_measured_after_decompression(part: str, times: int) -> None:
    """A small body, compressed several times, would fill the memory of the process."""
    with (
        server_of(hostile_at(part, lambda: bomb_of(times))) as server,
        bounded_memory(),
        pytest.raises(CommitRefused) as refused,
    ):
        load(server)
    assert refused.value.code == "catalog_answer_too_large"


@pytest.mark.parametrize("part", ["/config", "/tables/t"])
@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 200 OK\r\nx-slow: ",
        head("content-length: 100000"),
        head("content-length: 100000", status="503 Unavailable"),
        head("transfer-encoding: chunked") + b"186a0\r\n",
    ],
)
def test_a_slow_answer_of_a_catalog_ends(part: str, first: bytes) -> None:
    """Each byte comes in time, and the answer does not."""
    with (
        server_of(hostile_at(part, lambda: dripping(first))) as server,
        pytest.raises(RetriableError) as late,
    ):
        load(server)
    assert server.ended.acquire(timeout=60)
    assert server.sent_bytes < DRIPS_MAX
    assert late.value.code == "catalog_unavailable"
    assert "takes longer than" in late.value.message


@pytest.mark.parametrize("part", ["/config", "/tables/t"])
def test_small_chunks_take_little_memory(part: str) -> None:
    """An object for each of them would take hundreds of bytes for each byte of the body."""
    chunks = [head("transfer-encoding: chunked"), *[b"2\r\n  \r\n" * 1_000] * 300, b"0\r\n\r\n"]
    with (
        server_of(hostile_at(part, lambda: chunks)) as server,
        bounded_memory(16 * 2**20),
        pytest.raises(IcefloeError),
    ):
        load(server)


def test_interim_answers_without_end_are_limited() -> None:
    """A server may send any number of them before its answer."""

    def interim() -> Iterator[bytes]:
        while True:
            yield b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" * 10_000

    with server_of(lambda _: interim()) as server, pytest.raises(IcefloeError):
        load(server)
    assert server.sent_bytes < SENT_BYTES_MAX


def test_an_answer_within_the_limits_is_read() -> None:
    """Plain, compressed and in chunks."""
    text = TABLE.encode() + b" " * (BYTES_MAX - len(TABLE))
    for pieces in (
        answer(text),
        compressed(text),
        [head("transfer-encoding: chunked"), b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)],
    ):
        with server_of(hostile_at("/tables/t", lambda p=pieces: p)) as server:
            load(server)


@pytest.mark.parametrize("reads_answer", [True, False])
@pytest.mark.parametrize(
    "pieces",
    [
        endless,
        lambda: endless(is_chunked=True),
        lambda: bomb_of(2),
        lambda: dripping(head("content-length: 100000")),
    ],
)
def test_the_outcome_of_a_commit_is_unknown(
    pieces: Callable[[], Pieces], reads_answer: bool
) -> None:
    """The change may have been applied: the table is read after it."""
    with (
        server_of(hostile_at("POST", pieces)) as server,
        closing(catalog_of(server)) as catalog,
    ):
        table = catalog.load(("db", "t"))
        with bounded_memory(), pytest.raises(CommitStateUnknown) as unknown:
            catalog.commit(
                table, (), (SetPropertiesUpdate(updates={"a": "b"}),), reads_answer=reads_answer
            )
    assert server.sent_bytes < SENT_BYTES_MAX
    assert "answer" in unknown.value.message


def registry_of(server: HostileServer, **options: str) -> SchemaRegistry:
    """A client of a registry, without repetitions."""
    return SchemaRegistry(
        {
            "schema.registry.url": server.url,
            "max.retries": "0",
            "http.read.timeout.ms": "1000",
            **options,
        },
        answer_s=1,
    )


def token_options(server: HostileServer) -> dict[str, str]:
    """Options of a registry whose tokens are from the same server."""
    prefix = "bearer.auth."
    return {
        f"{prefix}credentials.source": "OAUTHBEARER",
        f"{prefix}client.id": "a",
        f"{prefix}client.secret": "b",
        f"{prefix}issuer.endpoint.url": f"{server.url}/token",
    }


HOSTILE: dict[str, Callable[[], Pieces]] = {
    "endless": endless,
    "chunks": lambda: endless(is_chunked=True),
    "bomb": lambda: bomb_of(1),
    "bombs": lambda: bomb_of(2),
    "slow": lambda: dripping(head("content-length: 100000")),
    "slow head": lambda: dripping(b"HTTP/1.1 200 OK\r\nx: "),
}


@pytest.mark.parametrize("has_token", [False, True])
@pytest.mark.parametrize("kind", list(HOSTILE))
def test_answers_of_a_registry_are_limited(kind: str, has_token: bool) -> None:
    """And those of its token endpoint; the registry counts as unavailable."""
    with (
        server_of(lambda _: HOSTILE[kind]()) as server,
        closing(registry_of(server, **(token_options(server) if has_token else {}))) as registry,
        bounded_memory(),
        pytest.raises(RetriableError) as failed,
    ):
        registry.by_id(1)
    assert server.sent_bytes < SENT_BYTES_MAX
    assert server.ended.acquire(timeout=60)
    assert failed.value.code == "registry_unavailable"
    assert json.dumps(server.requests).count("HTTP") == 1


def test_compressed_answers_of_a_registry_are_read() -> None:
    """With the compression that the client asks for."""
    schema: dict[str, Any] = {"schema": '"long"'}
    with (
        server_of(lambda _: compressed(json.dumps(schema).encode())) as server,
        closing(registry_of(server)) as registry,
    ):
        assert registry.by_id(1).text == '"long"'


def test_schemas_that_are_kept_are_bounded_in_bytes() -> None:
    """Each record can name another schema, and each of them may be large."""
    body = json.dumps({"schema": json.dumps("x" * 6 * 2**20)}).encode()
    with (
        server_of(lambda _: compressed(body)) as server,
        closing(registry_of(server)) as registry,
        bounded_memory(112 * 2**20),
    ):
        for schema_id in range(40):
            registry.by_id(schema_id)
        asked = len(server.requests)
        registry.by_id(39)
        assert len(server.requests) == asked, "the last one is kept"


def compressed(body: bytes) -> list[bytes]:
    """An answer with gzip."""
    return answer(gzip.compress(body), "content-encoding: gzip")
