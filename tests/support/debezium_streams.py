"""Debezium's streams of one database, and the connectors of Icefloe that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.changed_shop import TABLES, keys
from tests.support.debezium import SCHEMAS, TEXTS, flat

CHANGE_ROWS = {
    "transforms": "row",
    "transforms.row.type": "org.apache.iceberg.connect.transforms.DebeziumTransform",
    "transforms.row.cdc.target.pattern": "NS.{table}",
    "iceberg.tables.cdc-field": "_cdc.op",
    "iceberg.tables.upsert-mode-enabled": "true",
}
UPSERTS = {"iceberg.tables.upsert-mode-enabled": "true"}
BY_DELETED = {**UPSERTS, "iceberg.tables.cdc-field": "__deleted"}
BY_TOPIC = {
    "iceberg.tables.topic-to-table-map": ",".join(f"PREFIX.shop.{t}:NS.{t}" for t in TABLES)
}
TOLERANT = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "NS-letters",
    "errors.deadletterqueue.topic.replication.factor": "1",
}
BY_FIELD_TEMPLATE = {"iceberg.tables.name-template": "NS.${__table}"}
BY_TEMPLATE = {"iceberg.tables.name-template": "NS.${1}", "topics.regex": r"PREFIX\.shop\.(.*)"}


@dataclass(frozen=True)
class Sink:
    """A connector of Icefloe; NS is the namespace of its tables, PREFIX that of the topics.

    Attributes:
        name: of the form of routing.
        config: further keys.
        typed: the tables exist, with the types of the database.
        tables: which of the tables it writes.
        keeps_removed: deleted rows stay, because the stream has no deletes for the sink.
        letters: whether each delete is a dead letter instead.
    """

    name: str
    config: Mapping[str, str]
    typed: bool = False
    tables: tuple[str, ...] = tuple(TABLES)
    keeps_removed: bool = False
    letters: bool = False


@dataclass(frozen=True)
class Stream:
    """A connector of Debezium, and the sinks that read its topics."""

    name: str
    source: Mapping[str, str]
    sinks: tuple[Sink, ...]


def by_field(name: str) -> dict[str, str]:
    """Keys of a sink that writes the table which a field names."""
    return {
        "iceberg.tables.dynamic-enabled": "true",
        "iceberg.tables.route-field": name,
        "iceberg.tables.default-namespace": "NS",
    }


def by_regex(name: str) -> dict[str, str]:
    """Keys of a sink with static tables, and a regular expression for each."""
    return {
        "iceberg.tables": ",".join(f"NS.{table}" for table in TABLES),
        "iceberg.tables.route-field": name,
        **{f"iceberg.table.NS.{table}.route-regex": f"(.*[.])?{table}" for table in TABLES},
    }


def in_one_topic(router: str, prefix: str = "") -> dict[str, str]:
    """Keys of a source that sends the changes of all tables to one topic, ``PREFIX``."""
    own = {f"{prefix}regex": r"(\w+)\..*", f"{prefix}replacement": "$1", "type": router}
    return {"transforms": "one", **{f"transforms.one.{key}": value for key, value in own.items()}}


ALL_IN_ONE = in_one_topic("org.apache.kafka.connect.transforms.RegexRouter")
LOGICAL = in_one_topic("io.debezium.transforms.ByLogicalTableRouter", "topic.")
THREE = {"topic.creation.default.partitions": "3"}
FROM_ONE = {"topics": "PREFIX"}
ID_COLUMNS = {f"iceberg.table.NS.{table}.id-columns": ",".join(keys(table)) for table in TABLES}
BY_OP = {**UPSERTS, "iceberg.tables.cdc-field": "__op"}
UNROUTABLE = {**UPSERTS, **by_field("__table"), **TOLERANT}

MICROSECONDS = {"iceberg.tables.timestamp-unit": "us"}
TYPED = {"icefloe.debezium.types": "typed"}

STREAMS = (
    Stream(
        "envelope with schemas",
        SCHEMAS,
        (
            Sink("topic map", {**CHANGE_ROWS, **BY_TOPIC}, typed=True),
            Sink("route field", {**CHANGE_ROWS, **by_field("_cdc.target"), **TYPED}),
        ),
    ),
    Stream(
        "envelope without schemas",
        {**TEXTS, **THREE},
        (
            Sink("route field", {**CHANGE_ROWS, **by_field("_cdc.target"), "tasks.max": "2"}),
            Sink("template of topics", {**CHANGE_ROWS, **BY_TEMPLATE}, typed=True),
            Sink("regex", {**CHANGE_ROWS, **by_regex("_cdc.source")}),
        ),
    ),
    Stream(
        "envelope with schemas, one topic",
        {**SCHEMAS, **ALL_IN_ONE},
        (
            Sink("route field", {**FROM_ONE, **CHANGE_ROWS, **by_field("_cdc.target")}, typed=True),
            Sink("regex", {**FROM_ONE, **CHANGE_ROWS, **by_regex("_cdc.source")}),
        ),
    ),
    Stream(
        "envelope with schemas, logical table",
        {**SCHEMAS, **LOGICAL},
        (
            Sink(
                "route field",
                {**FROM_ONE, **CHANGE_ROWS, **by_field("_cdc.target"), **ID_COLUMNS},
            ),
        ),
    ),
    Stream(
        "flat, tombstone, with schemas",
        {**SCHEMAS, **THREE, **flat(None)},
        (
            Sink("topic map", {**UPSERTS, **BY_TOPIC, "tasks.max": "2"}, typed=True),
            Sink("static", {**UPSERTS, "iceberg.tables": "NS.orders"}, tables=("orders",)),
            Sink("template of topics", {**UPSERTS, **BY_TEMPLATE}),
            Sink("topic map, types of the source", {**UPSERTS, **BY_TOPIC, **TYPED}),
        ),
    ),
    Stream(
        "flat, tombstone, without schemas",
        {**TEXTS, **flat("tombstone", add_fields="table")},
        (
            Sink("topic map", {**UPSERTS, **BY_TOPIC}),
            Sink("static", {**UPSERTS, "iceberg.tables": "NS.lines"}, tables=("lines",)),
            Sink("template of topics", {**UPSERTS, **BY_TEMPLATE}, typed=True),
            Sink("route field", UNROUTABLE, keeps_removed=True, letters=True),
        ),
    ),
    Stream(
        "flat, rewrite, without schemas",
        {**TEXTS, **flat("rewrite", add_fields="table,op")},
        (
            Sink("route field", {**BY_DELETED, **by_field("__table")}),
            Sink("regex", {**BY_DELETED, **by_regex("__table")}, typed=True),
            Sink("topic map", {**BY_OP, **BY_TOPIC}),
        ),
    ),
    Stream(
        "flat, rewrite, with schemas",
        {**SCHEMAS, **flat("rewrite", add_fields="table,op")},
        (
            Sink("route field", {**BY_DELETED, **by_field("__table")}, typed=True),
            Sink("topic map", {**BY_OP, **BY_TOPIC}),
        ),
    ),
    Stream(
        "flat, rewrite, one topic",
        {**TEXTS, **flat("rewrite", add_fields="table"), **ALL_IN_ONE, "transforms": "flat,one"},
        (
            Sink("route field", {**FROM_ONE, **BY_DELETED, **by_field("__table")}),
            Sink("regex", {**FROM_ONE, **BY_DELETED, **by_regex("__table")}),
        ),
    ),
    Stream(
        "flat, rewrite-with-tombstone",
        {**TEXTS, **flat("rewrite-with-tombstone", add_fields="table")},
        (
            Sink("route field", {**BY_DELETED, **by_field("__table")}),
            Sink("topic map", {**BY_DELETED, **BY_TOPIC}),
            Sink("regex", {**BY_DELETED, **by_regex("__table")}, typed=True),
            Sink("template of fields", {**BY_DELETED, **BY_FIELD_TEMPLATE}),
        ),
    ),
    Stream(
        "flat, delete-to-tombstone",
        {**TEXTS, **flat("delete-to-tombstone", add_fields="table")},
        (
            Sink("topic map", {**UPSERTS, **BY_TOPIC}),
            Sink("route field", UNROUTABLE, keeps_removed=True, letters=True),
        ),
    ),
    Stream(
        "flat, drop",
        {**TEXTS, **flat("drop")},
        (Sink("topic map", {**UPSERTS, **BY_TOPIC}, keeps_removed=True),),
    ),
    Stream(
        "flat, microseconds, without schemas",
        {**TEXTS, **flat("rewrite"), "time.precision.mode": "microseconds"},
        (Sink("topic map", {**BY_DELETED, **BY_TOPIC, **MICROSECONDS}, typed=True),),
    ),
)
