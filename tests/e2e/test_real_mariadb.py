"""A real MariaDB by a real Debezium into a table that equals it, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from connect.gateways.catalog.catalog import open_catalog
from tests.support.changed_shop import Row
from tests.support.debezium import JSON_CONVERTER, debezium_worker, running_connector
from tests.support.java_connect import JavaConnect
from tests.support.mariadb import USER, MariaDb
from tests.support.running_stack import RunningStack, unsorted_rows

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java, pytest.mark.matrix]
SHOP, TABLE = "maria", "maria.items"
CREATED = {
    "transforms.row.cdc.target.pattern": "created.{table}",
    "icefloe.debezium.types": "typed",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.auto-create-props.format-version": "3",
}
# column: type of the source, type in an existing table, type in a created table
COLUMNS: dict[str, tuple[str, IcebergType, IcebergType]] = {
    "id": ("int primary key", IntegerType(), IntegerType()),
    "name": ("varchar(100)", StringType(), StringType()),
    "price": ("decimal(12,2)", DecimalType(12, 2), DecimalType(12, 2)),
    "day": ("date", DateType(), DateType()),
    "made": ("datetime(6)", TimestampType(), TimestampType()),
    "sold": ("timestamp(6) null", TimestamptzType(), TimestamptzType()),
    "counted": ("bigint unsigned", DecimalType(20, 0), DecimalType(20, 0)),
    "kind": ("enum('small','large')", StringType(), StringType()),
    "data": ("varbinary(50)", BinaryType(), BinaryType()),
    "packed": ("datetime", TimestampType(), TimestampType()),
    "opens": ("time(6)", TimeType(), TimeType()),
    "since": ("year", DateType(), IntegerType()),
    "colors": ("set('a','b','c')", StringType(), StringType()),
    "marks": ("bit(5)", StringType(), BinaryType()),
    "place": ("geometry", BinaryType(), StructType()),
    "labels": ("json", StringType(), StringType()),
}
ITEMS = Schema(
    *(
        NestedField(number, name, kind, required=name == "id")
        for number, (name, (_, kind, _)) in enumerate(COLUMNS.items(), 1)
    )
)
CREATE = f"create table maria.items ({', '.join(f'{n} {k}' for n, (k, *_) in COLUMNS.items())})"
_READ = {
    "data": "hex(data)",
    "counted": "cast(counted as char)",
    "marks": "lpad(bin(marks), 5, '0')",
    "place": "hex(st_aswkb(place))",
    "labels": "cast(labels as char)",
}
QUERY = f"select json_array({','.join(_READ.get(n, n) for n in COLUMNS)}) from maria.items"
TIMES = "'1969-12-31', '1969-12-31 23:59:59.999999', '2038-01-19 03:14:07.000001'"
REST = (
    "18446744073709551615, 'small', x'00ff', '1000-01-01 00:00:01', '23:59:59.999999', 2024, "
    """'a,c', b'00110', st_geomfromtext('POINT(1 2)'), '{"a": 1}'"""
)
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
    f"insert into maria.items values (9, '', 0, {TIMES}, {REST})",
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
    """Snapshot, updates, deletes and a changed key, as envelopes with a route field.

    One sink writes an existing table, the other creates one with the types of the source.
    """
    with closing(open_catalog("iceberg", running.stack.catalog_properties)) as gateway:
        properties = {"format-version": "3"}
        identifier = tuple(TABLE.split("."))
        gateway.create(identifier, ITEMS, UNPARTITIONED_PARTITION_SPEC, properties=properties)
    maria.execute(*SNAPSHOT)
    with running_connector(worker, SHOP, _source(running, maria)):
        topic = f"{SHOP}.{TABLE}"
        running.wait_until(lambda: topic in running.stack_topics(), lambda: topic)
        running.create(SHOP, _sink(running, topic))
        running.create("created", _sink(running, topic) | CREATED)
        for statements in ((), CHANGES):
            maria.execute(*statements)
            expected = sorted(map(_row, maria.rows(QUERY)))
            for table in (TABLE, "created.items"):
                running.wait_until(
                    lambda table=table, rows=expected: _rows(running, table) == rows,
                    lambda table=table: f"{_rows(running, table)}: {running.status(SHOP)}",
                )
        running.delete(SHOP)
        running.delete("created")
    for field in running.catalog.load_table("created.items").schema().fields:
        kind = COLUMNS[field.name][2] if field.name in COLUMNS else StructType()  # _cdc
        assert isinstance(kind, StructType) or field.field_type == kind, field


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
        "column.propagate.source.type": ".*counted",
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


def _rows(running: RunningStack, table: str) -> list[Row]:
    try:
        loaded = running.catalog.load_table(table)
    except NoSuchTableError:
        return []
    if loaded.current_snapshot() is None or len(loaded.schema().fields) < len(COLUMNS):
        return []
    return sorted(map(_restored, unsorted_rows(loaded, *COLUMNS)))


def _restored(row: Row) -> Row:
    """Return a row of a table with the values of a row of ``QUERY``."""
    values = dict(zip(COLUMNS, row, strict=True))
    if isinstance(values["since"], date):
        values["since"] = values["since"].year
    if isinstance(values["marks"], bytes):
        values["marks"] = f"{int.from_bytes(values['marks'], 'little'):05b}"
    if isinstance(values["place"], dict):
        values["place"] = values["place"]["wkb"]
    return tuple(values.values())


def _row(values: list[object]) -> Row:
    """Return a row of ``QUERY`` with the values of the table."""
    readers = {
        "price": Decimal,
        "day": date.fromisoformat,
        "made": datetime.fromisoformat,
        "sold": lambda value: datetime.fromisoformat(value).replace(tzinfo=UTC),
        "counted": Decimal,
        "data": bytes.fromhex,
        "packed": datetime.fromisoformat,
        "opens": time.fromisoformat,
        "place": bytes.fromhex,
    }
    return tuple(
        value if value is None or name not in readers else readers[name](value)
        for name, value in zip(COLUMNS, values, strict=True)
    )
