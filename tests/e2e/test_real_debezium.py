"""A real PostgreSQL by a real Debezium into tables: each table equals the database, row by row."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from connect.gateways.catalog.catalog import open_catalog
from tests.support.changed_shop import ChangedShop, Row, columns, keys, rows_of_sink
from tests.support.debezium import (
    JSON_CONVERTER,
    SCHEMAS,
    ChangeSource,
    change_source,
    flat,
)
from tests.support.debezium_streams import (
    CHANGE_ROWS,
    STREAMS,
    TOLERANT,
    TYPED,
    UPSERTS,
    Sink,
    Stream,
)
from tests.support.running_stack import RunningStack, unsorted_rows
from tests.support.stack import unique_name
from worker.task.tables.table_updates import commit_schema

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java]

ROWS = 20
CHANGES = int(os.environ.get("CHANGES", "60"))
WAIT_S = 45
MODES = ("vectors", "copy-on-write", "equality-deletes")

_TYPES: Mapping[str, IcebergType] = {
    "int": IntegerType(),
    "smallint": IntegerType(),
    "bigint": LongType(),
    "numeric(12,2)": DecimalType(12, 2),
    "numeric(10,4)": DecimalType(10, 4),
    "timestamptz": TimestamptzType(),
    "timestamp": TimestampType(),
    "date": DateType(),
    "time": TimeType(),
    "boolean": BooleanType(),
    "uuid": UUIDType(),
    "real": FloatType(),
    "double": DoubleType(),
    "bytea": BinaryType(),
    "numeric": DecimalType(20, 6),
    "timestamp(3)": TimestampType(),
    "time(3)": TimeType(),
    "timetz": TimeType(),
    "interval": LongType(),
    "point": BinaryType(),
    "date[]": ListType(100, DateType(), element_required=False),
}
# types that a created column has only by ``icefloe.debezium.types=typed``, by the kind of column
_OF_THE_SOURCE = frozenset(
    {"numeric(12,2)", "numeric(10,4)", "timestamptz", "timestamp", "date", "time", "uuid"}
    | {"timestamp(3)", "time(3)", "timetz", "date[]"}
)

ALTERATIONS = (
    (
        "alter table changed.accounts add column email text",
        "insert into changed.accounts values (3, 'c', 3, 3.5, 'e3')",
        "update changed.accounts set email = 'e1' where id = 1",
    ),
    (
        "alter table changed.accounts alter column name drop not null",
        "alter table changed.accounts alter column count type bigint",
        "alter table changed.accounts alter column price type numeric(14,2)",
        "insert into changed.accounts values (4, null, 5000000000, 123456789012.25, 'e4')",
        "update changed.accounts set name = null where id = 2",
        "delete from changed.accounts where id = 3",
    ),
)
COLUMNS_OF_ACCOUNTS = (
    "select column_name from information_schema.columns where table_schema = 'changed' "
    "order by ordinal_position"
)
CREATED = {
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.evolve-schema-enabled": "true",
    "iceberg.tables.auto-create-props.format-version": "3",
}


@pytest.fixture(scope="module")
def source(
    running: RunningStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ChangeSource]:
    """One database and one worker of Kafka Connect for all streams."""
    folder = tmp_path_factory.mktemp("debezium")
    with change_source(folder, running.stack.bootstrap_servers) as source:
        yield source


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(stream, id=stream.name, marks=[pytest.mark.matrix] if number else [])
        for number, stream in enumerate(STREAMS)
    ],
)
def test_tables_equal_the_database(
    running: RunningStack, source: ChangeSource, stream: Stream
) -> None:
    """Snapshot, inserts, updates, deletes and changed keys, in each form of routing."""
    prefix = unique_name("dbz").replace("-", "_")
    shop = ChangedShop(source)
    shop.create(seed=STREAMS.index(stream), rows=ROWS)
    names = [f"{prefix}_{number}" for number in range(len(stream.sinks))]
    with ExitStack() as stack:
        stack.enter_context(source.streaming(prefix, r"shop\..*", stream.source))
        running.wait_until(
            lambda: any(name.startswith(prefix) for name in running.stack_topics()),
            lambda: "the topics of the snapshot",
        )
        for number, name in enumerate(names):
            running.create(name, _config(running, name, stream, number))
            stack.callback(running.delete, name)
        for changes in (0, CHANGES):  # the rows of the snapshot are committed before they change
            shop.change(changes)
            differences = [
                difference
                for name, sink in zip(names, stream.sinks, strict=True)
                for difference in _differences(running, shop, name, sink)
            ]
            assert not differences, "\n".join(differences)
    for number, (name, sink) in enumerate(zip(names, stream.sinks, strict=True)):
        for place, table in enumerate(sink.tables):
            loaded = running.catalog.load_table(f"{name}.{table}")
            _assert_mode(loaded, MODES[(number + place) % len(MODES)])
            if TYPED.items() <= sink.config.items():
                _assert_typed(loaded, table)
        if sink.letters:
            assert len(running.records(f"{name}-letters")) == shop.deletes


@pytest.mark.matrix
def test_schema_changes_of_the_source(running: RunningStack, source: ChangeSource) -> None:
    """A new column, a column that may be null now, and wider numbers."""
    kinds = "id int primary key, name text not null, count int, price numeric(8,2)"
    source.execute(
        "create schema changed",
        f"create table changed.accounts ({kinds})",
        "insert into changed.accounts values (1, 'a', 1, 1.5), (2, 'b', 2, 2.5)",
    )
    sinks: dict[str, tuple[dict[str, str], dict[str, str]]] = {
        "altered_rows": (flat(None), UPSERTS),
        "altered_events": ({}, CHANGE_ROWS),
    }
    with ExitStack() as stack:
        for name, (flattened, config) in sinks.items():
            streaming = source.streaming(name, r"changed\..*", {**SCHEMAS, **flattened})
            stack.enter_context(streaming)
            own = {"topics": f"{name}.changed.accounts", "iceberg.tables": f"{name}.accounts"}
            shared = {"key.converter": JSON_CONVERTER, "value.converter": JSON_CONVERTER}
            filled = {key: value.replace("NS", name) for key, value in config.items()}
            running.create(name, running.connector() | {**CREATED, **shared, **own, **filled})
            stack.callback(running.delete, name)
        for batch in ((), *ALTERATIONS):
            if batch:
                source.execute(*batch)
            expected = sorted(source.rows("select * from changed.accounts"))
            names = [row[0] for row in source.rows(COLUMNS_OF_ACCOUNTS)]
            for name in sinks:
                rows = partial(_accounts, running, name, names)
                running.wait_until(partial(_equal, rows, expected), partial(str, rows))


@pytest.mark.matrix
def test_types_that_change_and_columns_that_are_renamed(
    running: RunningStack, source: ChangeSource
) -> None:
    """Texts for an int column have a column of their own. Then one table is repaired."""
    source.execute(
        "create schema retyped",
        "create table retyped.others (id int primary key)",
        "insert into retyped.others values (1), (2)",
        "create table retyped.accounts (id int primary key, name text not null, count int)",
        "insert into retyped.accounts values (1, 'a', 1), (2, 'b', 2)",
    )
    vectors = {**CREATED, **UPSERTS, "iceberg.tables.type-conflict": "text"}
    equality = {**vectors, "iceberg.tables.deletion-vectors-enabled": "false"}
    copies = {**CREATED, **CHANGE_ROWS, "iceberg.tables.write-mode": "copy-on-write"}
    new = {"iceberg.tables.type-conflict": "new-column"}
    sinks = {"retyped_rows": (flat(None), vectors), "retyped_equality": (flat(None), equality)}
    sinks["retyped_events"] = ({}, {**copies, **new})
    with ExitStack() as stack:
        for name, (flattened, keys_of_sink) in sinks.items():
            streaming = source.streaming(name, r"retyped\..*", {**SCHEMAS, **flattened})
            stack.enter_context(streaming)
            mapped = ",".join(f"{name}.retyped.{t}:{name}.{t}" for t in ("accounts", "others"))
            own = {
                "topics": f"{name}.retyped.accounts,{name}.retyped.others",
                "iceberg.tables.topic-to-table-map": mapped,
                **dict.fromkeys(("key.converter", "value.converter"), JSON_CONVERTER),
            }
            filled = {key: value.replace("NS", name) for key, value in keys_of_sink.items()}
            running.create(name, running.connector() | {**own, **filled})
            stack.callback(running.delete, name)

        def check(names: str, *expected: Row) -> None:
            for name in sinks:
                text = "count__string" if name == "retyped_events" else "count__text"
                rows = partial(_accounts, running, name, names.replace("TEXT", text).split())
                running.wait_until(partial(_equal, rows, [*expected]), partial(str, rows))

        check("id name count", (1, "a", 1), (2, "b", 2))
        source.execute(
            "alter table retyped.accounts alter column count type text",
            "update retyped.accounts set count = 'few' where id = 1",
            "insert into retyped.accounts values (3, 'c', 'many'), (4, 'd', '4')",
        )
        texts = [(2, "b", 2, None), (3, "c", None, "many"), (4, "d", 4, None)]
        check("id name count TEXT", (1, "a", None, "few"), *texts)
        source.execute(
            "alter table retyped.accounts rename column name to title",
            "update retyped.accounts set title = 'x' where id = 1",
        )
        renamed = [(i, name, None, count, text) for i, name, count, text in texts]
        check("id name title count TEXT", (1, None, "x", None, "few"), *renamed)
        for name in sinks:
            running.wait_until_running(name, trace=f"{name}.accounts.count to count__")
            _retype(running, f"{name}.accounts")
        others = [running.catalog.load_table(f"{n}.others").metadata_location for n in sinks]
        for name in sinks:
            only = ("--to-beginning", "--only", f"{name}.accounts", "--yes")
            assert running.icefloe("rewind", name, *only)[0] == 0
        old = [(2, "b", None, "2"), (3, "c", None, "many"), (4, "d", None, "4")]
        check("id name title count", (1, None, "x", "few"), *old)
        source.execute("update retyped.accounts set title = title")
        expected = source.rows("select id, title, count from retyped.accounts")
        check("id title count", *sorted(expected))
        now = [running.catalog.load_table(f"{n}.others").metadata_location for n in sinks]
        assert now == others


def _retype(running: RunningStack, name: str) -> None:
    """Give the column its new type, as an engine does: a column of the same name."""
    gateway = open_catalog("iceberg", running.stack.catalog_properties)
    table = gateway.load(name.split("."))
    kept = [each for each in table.schema().fields if not each.name.startswith("count")]
    text = NestedField(table.metadata.last_column_id + 1, "count", StringType(), required=False)
    commit_schema(gateway, table, Schema(*kept, text))
    gateway.close()


@pytest.mark.matrix
def test_large_values_that_an_update_leaves_unchanged(
    running: RunningStack, source: ChangeSource
) -> None:
    """PostgreSQL does not log them: they are named in the status, or the change is refused."""
    source.execute(
        "create schema large",
        "create table large.docs (id int primary key, title text, body text)",
        "alter table large.docs alter column body set storage external",
        ("insert into large.docs values (1, 'old', %s)", ["x" * 9_000]),
    )
    shared = {
        **CREATED,
        **UPSERTS,
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        "topics": "large.large.docs",
        "iceberg.control.commit.interval-ms": "1000",
    }
    refusing = {"iceberg.tables.unavailable-value": "error", **TOLERANT}
    with ExitStack() as stack:
        streaming = source.streaming("large", r"large\..*", {**SCHEMAS, **flat(None)})
        stack.enter_context(streaming)
        for name, more in (("large_stored", {}), ("large_refused", refusing)):
            own = {key: value.replace("NS", name) for key, value in more.items()}
            config = {**shared, **own, "iceberg.tables": f"{name}.docs"}
            running.create(name, running.connector() | config)
            stack.callback(running.delete, name)
        docs = "select id, title, body from large.docs"

        def rows(name: str) -> list[Row]:
            try:
                loaded = running.catalog.load_table(f"{name}.docs")
            except NoSuchTableError:
                return []
            return unsorted_rows(loaded, "id", "title", "body")

        def wait_for(name: str, expected: list[Row]) -> None:
            running.wait_until(lambda: rows(name) == expected, lambda: str(rows(name)))

        before = source.rows(docs)
        for name in ("large_stored", "large_refused"):
            wait_for(name, before)
        source.execute("update large.docs set title = 'new'")
        wait_for("large_stored", [(1, "new", "__debezium_unavailable_value")])
        running.wait_until_running("large_stored", trace="large_stored.docs.body")
        source.execute(
            "alter table large.docs replica identity full", "update large.docs set title = 'last'"
        )
        for name in ("large_stored", "large_refused"):
            wait_for(name, source.rows(docs))


def _equal(rows: Callable[[], list[Row]], expected: list[Row]) -> bool:
    return rows() == expected


def _accounts(running: RunningStack, name: str, columns: list[str]) -> list[Row]:
    try:
        loaded = running.catalog.load_table(f"{name}.accounts")
    except NoSuchTableError:
        return []
    if not {*columns} <= {field.name for field in loaded.schema().fields}:
        return []
    return sorted(unsorted_rows(loaded, *columns), key=lambda row: row[0])


def _config(running: RunningStack, name: str, stream: Stream, number: int) -> dict[str, str]:
    """Return the configuration of a sink; its tables have different write modes."""
    sink, prefix = stream.sinks[number], name.rpartition("_")[0]
    own: dict[str, str] = {
        "topics": ",".join(f"PREFIX.shop.{table}" for table in sink.tables),
        "key.converter": JSON_CONVERTER,
        "value.converter": JSON_CONVERTER,
        **{key: value for key, value in stream.source.items() if "schemas.enable" in key},
        **sink.config,
    }
    if "topics.regex" in own:
        del own["topics"]
    for place, table in enumerate(sink.tables):
        mode = MODES[(number + place) % len(MODES)]
        if mode == "copy-on-write":
            own[f"iceberg.table.NS.{table}.write-mode"] = mode
        elif mode == "equality-deletes" and not sink.typed:
            own[f"iceberg.table.NS.{table}.deletion-vectors-enabled"] = "false"
        if sink.typed:
            _create(running, f"{name}.{table}", table, "2" if mode == MODES[2] else "3")
    if not sink.typed:
        own |= CREATED
    filled = {k.replace("NS", name): v.replace("NS", name) for k, v in own.items()}
    return running.connector() | {k: v.replace("PREFIX", prefix) for k, v in filled.items()}


def _create(running: RunningStack, name: str, table: str, version: str) -> None:
    fields = [
        NestedField(n, column, _TYPES.get(kind, StringType()), required=column in keys(table))
        for n, (column, kind) in enumerate(columns(table).items(), 1)
    ]
    gateway = open_catalog("iceberg", running.stack.catalog_properties)
    properties = {"format-version": version}
    identifier = tuple(name.split("."))
    gateway.create(identifier, Schema(*fields), UNPARTITIONED_PARTITION_SPEC, properties=properties)
    gateway.close()


def _differences(running: RunningStack, shop: ChangedShop, name: str, sink: Sink) -> list[str]:
    """Wait until the tables equal the database; return what differs at the end."""
    deadline, left = time.monotonic() + WAIT_S, dict.fromkeys(sink.tables, "")
    while left:
        for table in list(left):
            expected = shop.rows(table, with_removed=sink.keeps_removed)
            left[table] = _difference(_rows(running, f"{name}.{table}", table), expected)
            if not left[table]:
                del left[table]
        if time.monotonic() > deadline:
            break
        time.sleep(0.5)
    tasks = running.status(name)["tasks"] if left else []
    traces = [task["trace"].partition("\n")[0] for task in tasks if "trace" in task]
    return [f"{sink.name}, {table}: {text}; {traces}" for table, text in left.items()]


def _assert_mode(table: Table, mode: str) -> None:
    """Check that the changes were committed in this write mode."""
    totals: Counter[str] = Counter()
    for snapshot in table.snapshots():
        assert snapshot.summary is not None
        for key, value in snapshot.summary.additional_properties.items():
            totals[key] += int(value) if value.isdigit() else 0
    assert bool(totals["added-equality-deletes"]) == (mode == "equality-deletes"), totals
    if mode != "vectors":
        assert not totals["added-position-deletes"], totals
    if mode != "equality-deletes":  # a data file without rows is removed and needs no vector
        assert totals["added-position-deletes"] or totals["deleted-data-files"], totals


def _assert_typed(table: Table, name: str) -> None:
    """Check that a created table has the types of the source."""
    created = {field.name: field.field_type for field in table.schema().fields}
    for column, kind in columns(name).items():
        if kind in _OF_THE_SOURCE:
            assert str(created[column]) == str(_TYPES[kind]), column


def _rows(running: RunningStack, name: str, table: str) -> list[Row]:
    try:
        loaded = running.catalog.load_table(name)
    except NoSuchTableError:
        return []
    if loaded.current_snapshot() is None:
        return []
    return rows_of_sink(unsorted_rows(loaded, *columns(table)), table)


def _difference(rows: list[Row], expected: list[Row]) -> str:
    if rows == expected:
        return ""
    missing = [row for row in expected if row not in rows]
    more = [row for row in rows if row not in expected]
    return f"{len(rows)} rows, {len(expected)} expected; missing {missing[:3]}; also {more[:3]}"
