"""A real MariaDB by a real Debezium into a table that equals it, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from connect.gateways.catalog.catalog import open_catalog
from tests.support.changed_shop import Row
from tests.support.debezium import JSON_CONVERTER, debezium_worker, running_connector
from tests.support.java_connect import JavaConnect
from tests.support.mariadb import USER, MariaDb
from tests.support.running_stack import RunningStack, unsorted_rows

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java, pytest.mark.matrix]
SHOP, TABLE = "maria", "maria.items"
ITEMS = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "price", DecimalType(12, 2), required=False),
    NestedField(4, "day", DateType(), required=False),
    NestedField(5, "made", TimestampType(), required=False),
    NestedField(6, "sold", TimestamptzType(), required=False),
    NestedField(7, "counted", LongType(), required=False),
    NestedField(8, "kind", StringType(), required=False),
    NestedField(9, "data", BinaryType(), required=False),
)
CREATE = (
    "create table maria.items (id int primary key, name varchar(100), price decimal(12,2), "
    "day date, made datetime(6), sold timestamp(6) null, counted bigint unsigned, "
    "kind enum('small','large'), data varbinary(50))"
)
QUERY = "select json_array(id,name,price,day,made,sold,counted,kind,hex(data)) from maria.items"
TIMES = "'1969-12-31', '1969-12-31 23:59:59.999999', '2038-01-19 03:14:07.000001'"
REST = "9007199254740993, 'small', x'00ff'"
SNAPSHOT = (
    f"insert into maria.items values (1, 'é€😀', -0.01, {TIMES}, {REST})",
    "insert into maria.items (id) values (2), (3), (4)",
)
CHANGES = (
    "start transaction",
    "update maria.items set name = 'two', price = 9999999999.99 where id = 2",
    "delete from maria.items where id = 3",
    "insert into maria.items (id, name) values (5, 'a\\tb'), (6, '')",
    "update maria.items set id = 7 where id = 4",
    "commit",
    "delete from maria.items where id = 5",
    "insert into maria.items (id, name) values (5, 'again')",
    "insert into maria.items (id, kind) values (8, 'large')",
)


@pytest.fixture
def maria(tmp_path: Path) -> Iterator[MariaDb]:
    """A server with the table."""
    server = MariaDb(tmp_path)
    try:
        server.start()
        server.execute(f"create database {SHOP}", CREATE)
        yield server
    finally:
        server.stop()


@pytest.fixture
def worker(running: RunningStack, tmp_path: Path) -> Iterator[JavaConnect]:
    """A worker of Kafka Connect with the connector of MariaDB."""
    servers = running.stack.bootstrap_servers
    with debezium_worker(tmp_path / "connect", servers, "debezium-mariadb") as worker:
        yield worker


def test_a_table_equals_mariadb(running: RunningStack, maria: MariaDb, worker: JavaConnect) -> None:
    """Snapshot, updates, deletes and a changed key, as envelopes with a route field."""
    with closing(open_catalog("iceberg", running.stack.catalog_properties)) as gateway:
        properties = {"format-version": "3"}
        identifier = tuple(TABLE.split("."))
        gateway.create(identifier, ITEMS, UNPARTITIONED_PARTITION_SPEC, properties=properties)
    maria.execute(*SNAPSHOT)
    with running_connector(worker, SHOP, _source(running, maria)):
        topic = f"{SHOP}.{TABLE}"
        running.wait_until(lambda: topic in running.stack_topics(), lambda: topic)
        running.create(SHOP, _sink(running, topic))
        for statements in ((), CHANGES):
            maria.execute(*statements)
            expected = sorted(map(_row, maria.rows(QUERY)))
            running.wait_until(
                lambda rows=expected: _rows(running) == rows,
                lambda: f"{_rows(running)}: {running.status(SHOP)}",
            )
        running.delete(SHOP)


def _source(running: RunningStack, maria: MariaDb) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(maria.port),
        "database.user": USER,
        "database.password": USER,
        "database.server.id": "8",
        "database.ssl.mode": "disable",
        "database.include.list": SHOP,
        "topic.prefix": SHOP,
        "schema.history.internal.kafka.bootstrap.servers": running.stack.bootstrap_servers,
        "schema.history.internal.kafka.topic": "maria-history",
    }


def _sink(running: RunningStack, topic: str) -> dict[str, str]:
    return {
        **running.connector(topics=topic),
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "value.converter.schemas.enable": "true",
        "transforms": "row",
        "transforms.row.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": "_cdc.target",
        "iceberg.tables.cdc-field": "_cdc.op",
        "iceberg.tables.upsert-mode-enabled": "true",
    }


def _rows(running: RunningStack) -> list[Row]:
    loaded = running.catalog.load_table(TABLE)
    if loaded.current_snapshot() is None:
        return []
    return sorted(unsorted_rows(loaded, *(field.name for field in ITEMS.fields)))


def _row(values: list[object]) -> Row:
    """Return a row of ``QUERY`` with the values of the table."""
    readers = (int, str, Decimal, date.fromisoformat, *[datetime.fromisoformat] * 2, int, str)
    read = [
        v if v is None else r(v) for v, r in zip(values, (*readers, bytes.fromhex), strict=True)
    ]
    if isinstance(read[5], datetime):
        read[5] = read[5].replace(tzinfo=UTC)
    return tuple(read)
