"""Metastores and databases that a tenant names: their answers end, and no other host is reached."""

from __future__ import annotations

import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg2
import pytest
from psycopg2 import extensions

from connect.errors import CommitRefused, ConfigError, IcefloeError, RetriableError
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.catalog.hive_sockets import HIVE_BYTES_MAX
from connect.gateways.catalog.postgres_wait import limit_waiting
from tests.support.hostile_server import HostileServer, endless

Serve = Callable[[socket.socket], None]
BYTES_MAX = 2**20
SENT_BYTES_MAX = 128 * 2**20
MEMORY_BYTES_MAX = 48 * 2**20
AUTHENTICATED = struct.pack("!cII", b"R", 8, 0)
STATUS = b"".join(
    struct.pack("!cI", b"S", 4 + len(text)) + text
    for text in (b"client_encoding\0UTF8\0", b"DateStyle\0ISO, MDY\0")
)
READY = STATUS + struct.pack("!cIc", b"Z", 5, b"I")


@pytest.fixture(autouse=True)
def limited_process() -> Iterator[None]:
    """The limits of the process are low."""
    install(AccessPolicy(answer_bytes_max=BYTES_MAX, answer_ms_max=1_000))
    yield
    install(AccessPolicy())
    extensions.set_wait_callback(None)


@contextmanager
def server_of(serve: Serve) -> Iterator[tuple[int, list[bytes]]]:
    """A server; its port, and the first bytes of each connection."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                    with connection:
                        received.append(connection.recv(65_536))
                        serve(connection)
                except OSError:
                    if listener.fileno() < 0:
                        return

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], received
        listener.shutdown(socket.SHUT_RDWR)


def flood(start: bytes, piece: bytes, *, ready: bytes = b"") -> Serve:
    """Send pieces until the client closes the connection."""

    def serve(connection: socket.socket) -> None:
        if ready:
            connection.sendall(ready)
            connection.recv(65_536)
        connection.sendall(start)
        for _ in range(SENT_BYTES_MAX // len(piece)):
            connection.sendall(piece)

    return serve


def drip(start: bytes, piece: bytes) -> Serve:
    """Send a byte after another, each of them in time."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(start)
        pause = threading.Event()
        for _ in range(1_000):
            pause.wait(0.05)
            connection.sendall(piece)

    return serve


def reply(*, size: int) -> bytes:
    """The start of an answer of a metastore, with a text of this size."""
    name = b"get_table"
    head = struct.pack("!II", 0x80010002, len(name)) + name + struct.pack("!I", 0)
    field = struct.pack("!bh", 12, 0) + struct.pack("!bh", 11, 1)  # success, and in it a text
    return head + field + struct.pack("!I", size)


def load_from_hive(port: int) -> None:
    """Load a table."""
    properties = {"type": "hive", "uri": f"thrift://127.0.0.1:{port}"}
    with closing(open_catalog("c", properties)) as catalog:
        catalog.load(("db", "t"))


@pytest.mark.parametrize("size", [100 * 2**20, 2**31 - 1])
def test_a_metastore_without_end(size: int) -> None:
    """Its table is refused."""
    tracemalloc.start()
    try:
        with (
            server_of(flood(reply(size=size), b"x" * 2**16)) as (port, _),
            pytest.raises(IcefloeError) as refused,
        ):
            load_from_hive(port)
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert isinstance(refused.value, CommitRefused | RetriableError)
    assert min(BYTES_MAX, HIVE_BYTES_MAX) == BYTES_MAX


def test_a_metastore_that_sends_byte_by_byte() -> None:
    """The thread is not held longer than the limit."""
    with (
        server_of(drip(reply(size=1_000), b"x")) as (port, _),
        pytest.raises(RetriableError, match="takes longer than 1000 ms"),
    ):
        load_from_hive(port)


def test_a_metastore_at_another_address() -> None:
    """Nothing is sent to a host that its name resolves to only when it is connected."""
    with server_of(flood(b"", b"x")) as (port, received):
        install(AccessPolicy(is_guarded=True))
        from thrift.transport.TTransport import TTransportException

        from connect.gateways.catalog.hive_sockets import HiveSocket

        with pytest.raises((ConfigError, TTransportException)) as refused:
            HiveSocket("127.0.0.1", port).open()
        assert isinstance(refused.value, ConfigError)
        assert received in ([], [b""])


def query(port: int) -> None:
    """Send a query to a database."""
    limit_waiting()
    address = f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable"
    with closing(psycopg2.connect(address)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def test_a_database_without_end() -> None:
    """Rows are not received beyond the limit."""
    row = struct.pack("!cIHI", b"D", 4 + 2 + 4 + 60_000, 1, 60_000) + b"x" * 60_000
    column = b"c\0" + struct.pack("!IHIHIH", 0, 0, 25, 0xFFFF, 0xFFFFFFFF, 0)
    start = struct.pack("!cIH", b"T", 6 + len(column), 1) + column
    with (
        server_of(flood(start, row, ready=AUTHENTICATED + READY)) as (port, _),
        pytest.raises(psycopg2.OperationalError, match="has more than 1048576 bytes"),
    ):
        query(port)


def test_a_database_that_sends_byte_by_byte() -> None:
    """The thread is not held longer than the limit."""
    install(AccessPolicy(answer_ms_max=1_000))
    notice = struct.pack("!cI", b"N", 2_000)
    with server_of(drip(AUTHENTICATED + notice, b"x")) as (port, _):
        limit_waiting()
        address = f"postgresql://u@127.0.0.1:{port}/d?sslmode=disable"
        with pytest.raises(psycopg2.OperationalError, match="takes longer than 1000 ms"):
            psycopg2.connect(address, options="-c statement_timeout=100")


def test_a_database_at_another_address() -> None:
    """Nothing is sent to a host that its name resolves to only when it is connected."""
    with server_of(flood(b"", b"x")) as (port, received):
        install(AccessPolicy(is_guarded=True))
        with pytest.raises(ConfigError) as refused:
            query(port)
        assert refused.value.code == "host_refused"
    assert received in ([], [b""])


def test_an_endpoint_of_glue_without_end() -> None:
    """Its table is refused, and little of it is in memory."""
    server = HostileServer(lambda _: endless())
    keys = {"glue.access-key-id": "a", "glue.secret-access-key": "b"}
    properties = {"type": "glue", "glue.endpoint": server.url, "glue.region": "eu-west-1"}
    tracemalloc.start()
    try:
        with (
            pytest.raises(IcefloeError) as refused,
            closing(open_catalog("c", {**properties, **keys})) as catalog,
        ):
            catalog.load(("db", "t"))
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()
        server.close()
    assert refused.value.code == "catalog_answer_too_large"
