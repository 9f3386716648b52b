"""Routes of records; the recordings hold what the Java sink does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, RecordError
from connect.java_compat.java_regex import compile_java_regex
from connect.model.records import ConnectSchema, SinkRecord, Struct
from connect.records.routing import TOMBSTONE_UNROUTABLE, UNMATCHED, Router
from connect.validation.parse import parse


def config(**keys: str) -> ConnectorConfig:
    """A connector's configuration; double underscores stand for dots, single for hyphens."""
    base = {
        "name": "c",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "t",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://127.0.0.1/",
    }
    extra = {f"iceberg.{k.replace('__', '.').replace('_', '-')}": v for k, v in keys.items()}
    return parse({**base, **extra})


def record(value: Any) -> SinkRecord:
    """A record with a value."""
    return SinkRecord("t", 0, 0, None, value=value)


def static(unmatched: str) -> Router:
    """A router with one regex."""
    return Router(
        config(
            tables="db.a,db.b",
            tables__route_field="kind",
            table__db__a__route_regex="x+",
            tables__unmatched=unmatched,
        )
    )


@pytest.mark.parametrize("unmatched", ["fail", "dead-letter"])
@pytest.mark.parametrize("value", [{"kind": "y"}, {"kind": None}, {}, {"kind": "xy"}])
def test_an_unmatched_record_is_an_error(unmatched: str, value: Any) -> None:
    """With stage and code, unless it is dropped by configuration."""
    with pytest.raises(RecordError) as refused:
        static(unmatched).route(record(value))
    assert (refused.value.stage, refused.value.code) == ("ROUTE", UNMATCHED)
    assert static("drop").route(record(value)) == ()


@pytest.mark.parametrize("unmatched", ["fail", "dead-letter", "drop"])
def test_a_tombstone_without_a_table_is_no_error(unmatched: str) -> None:
    """A tombstone without table is not an error."""
    assert static(unmatched).route(record(None)) == ()


UPSERT = {"tables__upsert_mode_enabled": "true", "tables__unmatched": "dead-letter"}
REGEX = {
    "tables": "db.a,db.b",
    "tables__route_field": "m.kind",
    "table__db__a__route_regex": "x+",
    "table__db__b__route_regex": ".*y",
}
DYNAMIC = {"tables__dynamic_enabled": "true", "tables__route_field": "m.kind"}
NAMED = {"tables__name_template": "db.${topic}_${m.kind}"}
MAPPED = {"tables__topic_to_table_map": "t:db.mapped"}
X, Y, Z = ({"id": 1, "m": {"kind": kind}} for kind in ("x", "xy", "db.z"))


@pytest.mark.parametrize(
    ("keys", "key", "tables"),
    [
        ({"tables": "db.a,db.b"}, 7, ("db.a", "db.b")),
        (REGEX, X, ("db.a",)),
        (REGEX, Y, ("db.b",)),
        (REGEX, {"id": 1}, None),
        (REGEX, 7, None),
        (REGEX, Z, None),
        (DYNAMIC, Z, ("db.z",)),
        (DYNAMIC, {"id": 1}, None),
        (DYNAMIC, 7, None),
        (MAPPED, 7, ("db.mapped",)),
        ({"tables__topic_to_table_map": "other:db.o"}, 7, None),
        ({"tables__name_template": "db.${topic}"}, 7, ("db.t",)),
        (NAMED, X, ("db.t_x",)),
        (NAMED, {"id": 1}, None),
        ({"tables__name_template": "db.${schema}"}, 7, None),
    ],
)
def test_a_tombstone_goes_to_the_tables_of_its_topic_or_key(
    keys: dict[str, str], key: Any, tables: tuple[str, ...] | None
) -> None:
    """In each form of routing; the error says that the tombstone names no table."""
    tombstone = replace(record(None), key=key)
    router = Router(config(**keys, **UPSERT))
    if tables is not None:
        assert router.route(tombstone) == tables
    else:
        with pytest.raises(RecordError) as refused:
            router.route(tombstone)
        assert (refused.value.stage, refused.value.code) == ("ROUTE", TOMBSTONE_UNROUTABLE)
        assert (
            Router(config(**keys, **{**UPSERT, "tables__unmatched": "drop"})).route(tombstone) == ()
        )
    assert Router(config(**keys)).route(tombstone) == ()


def test_dynamic_tables_are_bounded() -> None:
    """The number of tables of dynamic routing is limited."""
    router = Router(
        config(tables__dynamic_enabled="true", tables__route_field="t", tables__max_tables="2"),
        known_tables=frozenset({"db.old"}),
    )
    assert router.route(record({"t": "DB.New"})) == ("db.new",)
    assert router.route(record({"t": "db.OLD"})) == ("db.old",)
    with pytest.raises(RecordError) as refused:
        router.route(record({"t": "db.other"}))
    assert refused.value.code == "too_many_tables"
    assert router.route(record({"t": "db.new"})) == ("db.new",)


@given(st.text(max_size=10))
def test_any_text_is_a_route(text: str) -> None:
    """A dynamic route is the text in lower case, or the record has no table."""
    router = Router(
        config(
            tables__dynamic_enabled="true",
            tables__route_field="t",
            tables__unmatched="drop",
        )
    )
    assert router.route(record({"t": text})) in ((text.lower(),), ())


@pytest.mark.parametrize(
    ("java", "text", "matches"),
    [
        (r"(?<year>\d+)-.*", "2024-x", True),
        (r"\p{Alpha}+", "abc", True),
        (r"[\p{Upper}_]+", "A_B", True),
        (r"\p{Upper}+", "ab", False),
        (r"(?<!a)b", "b", True),
        (r"x\z", "x", True),
        (r"\d", "٣", False),
        (r"a++", "aaa", True),
    ],
)
def test_java_regexes(java: str, text: str, matches: bool) -> None:
    """Translated patterns have the same result in both engines."""
    assert bool(compile_java_regex(java).fullmatch(text)) is matches


def test_bad_regexes_are_configuration_errors() -> None:
    """Java constructs that Python lacks are translated."""
    for java in ("(", r"\p{IsGreek}"):
        with pytest.raises(ConfigError):
            compile_java_regex(java)


def named(**keys: str) -> Router:
    """A router whose tables the records name."""
    return Router(config(**keys))


def at(topic: str, value: Any) -> SinkRecord:
    return SinkRecord(topic, 0, 0, None, value=value)


def test_topics_are_mapped_to_tables() -> None:
    """A topic in the map has a table with the default namespace; other topics have none."""
    router = named(tables__topic_to_table_map="a:x.y, b: Z", tables__default_namespace="lake")
    assert router.route(at("a", {})) == ("x.y",)
    assert router.route(at("b", {})) == ("lake.Z",)
    with pytest.raises(RecordError) as refused:
        router.route(at("c", {}))
    assert refused.value.code == UNMATCHED


@pytest.mark.parametrize(
    ("template", "topic", "value", "table"),
    [
        ("lake.${topic}", "EU.orders-1", {}, "lake.eu_orders-1"),
        ("lake.${a.b}_${topic}", "t", {"a": {"b": "X.Y/../z"}}, "lake.x_y____z_t"),
        ("lake.${n}", "t", {"n": 7}, "lake.7"),
        ("lake.${n}", "t", {"n": None}, None),
        ("lake.${n}", "t", {"n": ""}, None),
        ("lake.${n}", "t", {"n": "x" * 201}, None),
    ],
)
def test_templates_are_filled_by_topic_and_fields(
    template: str, topic: str, value: Any, table: str | None
) -> None:
    """They cannot select a namespace and must exist."""
    router = named(tables__name_template=template, tables__unmatched="drop")
    assert router.route(at(topic, value)) == ((table,) if table else ())


def test_a_template_may_contain_the_schema_name() -> None:
    """The full name of the value's schema; without one there is no table."""
    router = named(tables__name_template="lake.${topic}_${schema}", tables__unmatched="drop")
    schema = ConnectSchema("struct", name="com.shop.Order/../x")
    there = SinkRecord("t", 0, 0, None, value=Struct(schema), value_schema=schema)
    assert router.route(there) == ("lake.t_com_shop_order____x",)
    nameless = replace(there, value_schema=ConnectSchema("struct"))
    assert router.route(nameless) == router.route(at("t", {"schema": "x"})) == ()


def test_a_template_may_contain_groups_of_the_topics_regex() -> None:
    """By number; a renamed topic may not match."""
    keys = {"tables__name_template": "lake.${2}_${1}", "tables__unmatched": "drop"}
    base = {"name": "c", "connector.class": "IcebergSink", "iceberg.catalog.type": "rest"}
    raw = {f"iceberg.{k.replace('__', '.').replace('_', '-')}": v for k, v in keys.items()}
    router = Router(parse({**base, "topics.regex": r"(\w+)\.(orders|refunds)", **raw}))
    assert router.route(at("eu.orders", {})) == ("lake.orders_eu",)
    assert router.route(at("other", {})) == ()


@pytest.mark.parametrize(
    "keys",
    [
        {"tables__name_template": "lake.${1}"},
        {"tables__name_template": "lake.${}"},
        {"tables__name_template": "lake.$x"},
        {"tables__name_template": "${topic}"},
        {"tables__topic_to_table_map": "a"},
        {"tables__topic_to_table_map": "a:x.y,a:x.z"},
        {"tables__topic_to_table_map": "a:x"},
        {"tables__topic_to_table_map": "a:x.y", "tables": "x.y"},
    ],
)
def test_bad_names_are_errors_of_the_configuration(keys: dict[str, str]) -> None:
    """Unknown variables, missing groups or namespaces, and two kinds of routing are errors."""
    with pytest.raises(ConfigError):
        config(**keys)


def test_a_connector_writes_only_granted_tables() -> None:
    """Named by its configuration or by a record."""
    raw = {
        "name": "c",
        "connector.class": "IcebergSink",
        "topics": "t",
        "iceberg.catalog.type": "rest",
    }
    node = {"icefloe.grants.c": r"lake\..*", "icefloe.grants.default": "none"}
    dynamic = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "t"}
    router = Router(parse({**raw, **dynamic}, node=node))
    assert router.route(at("t", {"t": "lake.a"})) == ("lake.a",)
    with pytest.raises(RecordError) as refused:
        router.route(at("t", {"t": "other.a"}))
    assert (refused.value.stage, refused.value.code) == ("ROUTE", "not_granted")
    assert parse({**raw, "iceberg.tables": "lake.a"}, node=node).tables == ("lake.a",)
    with pytest.raises(ConfigError, match="granted"):
        parse({**raw, "iceberg.tables": "lake.a,other.b"}, node=node)
    with pytest.raises(ConfigError, match="granted"):
        parse({**raw, "name": "d", "iceberg.tables": "lake.a"}, node=node)
    letters = {"iceberg.tables": "lake.a", "errors.deadletterqueue.table": "lake.dead"}
    assert parse({**raw, **letters}, node=node).errors.dead_letter_table == "lake.dead"
    for namespace, table in (("lake", "other.dead"), ("other", "dead")):
        letters |= {"errors.deadletterqueue.table": table}
        letters |= {"iceberg.tables.default-namespace": namespace}
        with pytest.raises(ConfigError, match=r"errors\.deadletterqueue\.table: .* granted"):
            parse({**raw, **letters}, node=node)
