"""A connector's JSON into its typed configuration."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.config.invalid_config import InvalidConfigError
from connect.config.keys.connector_keys import CONNECTOR_KEYS, FRAMEWORK_KEYS
from connect.config.start_position import StartPosition
from connect.validation.key_checks import check_connector
from connect.validation.parse import parse

GOOD = {
    "name": "orders",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders, refunds",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}


def errors(config: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Return the errors of a configuration."""
    with pytest.raises(InvalidConfigError) as caught:
        parse(config)
    return caught.value.errors


def test_defaults_are_the_java_sinks() -> None:
    """Each key of the Java sink has the default of the recorded answer."""
    recorded = Path(__file__).parents[3] / "golden" / "connect_rest" / "iceberg-sink-config.json"
    theirs = {
        entry["name"]: entry["default_value"]
        for entry in json.loads(recorded.read_text())["configs"]
        if entry["name"].startswith("iceberg.")
        and entry["name"] != "iceberg.control.commit.threads"  # twice the machine's cores there
    }
    ours = {key.name: key.default_text for key in CONNECTOR_KEYS if key.name in theirs}
    assert len(ours) >= 20
    assert ours == {name: theirs[name] for name in ours}


def test_a_minimal_configuration_has_the_java_sinks_defaults() -> None:
    """A minimal configuration has the Java sink's defaults."""
    config = parse(GOOD)
    assert config.topics == ("orders", "refunds")
    assert config.tasks_max == 1
    assert config.commit_interval_ms == 300_000
    assert config.commit_timeout_ms == 30_000
    assert config.control_topic == "control-iceberg"
    assert config.connect_group_id == "connect-orders"
    assert config.catalog_name == "iceberg"
    assert config.catalog_properties == {"type": "rest", "uri": "http://127.0.0.1:1"}
    assert config.unmatched == "fail"
    assert config.start == StartPosition()
    assert config.raw == GOOD


def test_tables_take_their_own_settings_over_the_defaults() -> None:
    """``iceberg.table.<name>.*`` overrides ``iceberg.tables.default-*``."""
    config = parse(
        {
            **GOOD,
            "iceberg.tables": "a.b, c.d",
            "iceberg.tables.default-partition-by": "day(ts), bucket(id, 8)",
            "iceberg.tables.default-id-columns": "id",
            "iceberg.tables.default-sort-by": "bucket(8, id), ts desc nulls first",
            "iceberg.tables.default-location": "s3://lake/${namespace}/${table}",
            "iceberg.table.a.b.partition-by": "kind",
            "iceberg.table.a.b.sort-by": "",
            "iceberg.table.a.b.location": "s3://other/b",
            "iceberg.table.a.b.route-regex": "x.*",
            "iceberg.tables.sort-enabled": "true",
            "iceberg.table.a.b.sort-enabled": "FALSE",
        }
    )
    assert config.table("a.b").partition_by == ("kind",)
    assert config.table("a.b").route_regex == "x.*"
    assert config.table("a.b").id_columns == ("id",)
    assert config.table("c.d").partition_by == ("day(ts)", "bucket(id, 8)")
    assert config.table("e.f").partition_by == ("day(ts)", "bucket(id, 8)")
    assert (config.table("a.b").sort_by, config.table("a.b").location) == ((), "s3://other/b")
    assert not config.table("a.b").sort_enabled
    for table in (config.table("c.d"), config.table("e.f")):
        assert table.sort_enabled
        assert table.sort_by == ("bucket(8, id)", "ts desc nulls first")
        assert table.location == "s3://lake/${namespace}/${table}"


def test_rows_are_distributed_only_where_the_connector_says_so() -> None:
    """A property of the table, or of those that it writes with, is for other engines."""
    key = "iceberg.tables.write-distribution-mode"
    assert parse({**GOOD, key: "hash"}).distributes_rows
    own = {"iceberg.tables.write-props.write.distribution-mode": "hash"}
    for more in ({}, {key: "none"}, own):
        assert not parse({**GOOD, **more}).distributes_rows


def test_converters_come_from_the_connector_else_from_the_node() -> None:
    """Class and options of a converter come from the same configuration."""
    node = {"value.converter": "NodeConverter", "value.converter.x": "1"}
    assert parse(GOOD, node=node).value_converter.options == {"x": "1"}
    own = {**GOOD, "value.converter": "Own", "value.converter.y": "2"}
    assert parse(own, node=node).value_converter.options == {"y": "2"}


def test_group_of_the_source_offsets() -> None:
    """``consumer.override.group.id`` or ``iceberg.connect.group-id`` sets the group, not both."""
    assert parse({**GOOD, "consumer.override.group.id": "g"}).connect_group_id == "g"
    assert parse({**GOOD, "iceberg.connect.group-id": "h"}).control_group_id == "h-coord"
    both = {**GOOD, "consumer.override.group.id": "g", "iceberg.connect.group-id": "h"}
    assert "iceberg.connect.group-id" in errors(both)


def test_groups_of_the_older_sink() -> None:
    """The older sink's JSON keeps its control group; Connect's copy of the offsets is known."""
    tabular = {**GOOD, "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"}
    name = GOOD["name"]
    config = parse(tabular)
    assert config.connect_group_id == f"cg-control-{name}"
    assert config.fallback_group_id == f"connect-{name}"
    assert config.member_groups == (f"cg-control-{name}", f"connect-{name}")
    named = {"iceberg.control.group-id": "g", "iceberg.connect.group-id": "copy"}
    assert parse({**tabular, **named}).control_group_id == "g-coord"
    assert parse({**GOOD, "iceberg.control.group-id": "g"}).connect_group_id == "g"
    assert parse(GOOD).fallback_group_id is None
    assert "iceberg.control.group-id" in errors({**GOOD, **named})


def test_all_errors_are_reported_together() -> None:
    """The error contains all invalid keys."""
    found = errors(
        {
            "name": "x",
            "connector.class": "Nope",
            "tasks.max": "0",
            "iceberg.control.commit.threads": "1.5",
            "icefloe.tablez": "a.b",
        }
    )
    assert set(found) == {
        "connector.class",
        "tasks.max",
        "topics",
        "topics.regex",
        "iceberg.control.commit.threads",
        "icefloe.tablez",
        "iceberg.tables",
        "iceberg.catalog",
    }
    assert found["tasks.max"] == (
        "Invalid value 0 for configuration tasks.max: Value must be at least 1",
    )


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("icefloe.drain.record", "icefloe.drain.records"),
        ("icefloe.lso.stalled-ms", "icefloe.lso.stalled.ms"),
    ],
)
def test_an_unknown_key_has_the_nearest_known_one(wrong: str, nearest: str) -> None:
    """Unknown keys of Icefloe are errors."""
    (sentence,) = errors({**GOOD, wrong: "1"})[wrong]
    assert sentence.endswith(f"Did you mean {nearest}?")


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"topics.regex": "x"}, "topics"),
        ({"topics": "a,a"}, "topics"),
        ({"topics": "a,,b"}, "topics"),
        ({"topics": "", "topics.regex": "["}, "topics.regex"),
        ({"errors.deadletterqueue.topic.name": "orders"}, "topics"),
        ({"errors.tolerance": "some"}, "errors.tolerance"),
        ({"iceberg.tables.dynamic-enabled": "true"}, "iceberg.tables"),
        ({"iceberg.tables": ""}, "iceberg.tables"),
        ({"iceberg.tables": "unqualified"}, "iceberg.tables"),
        ({"iceberg.table.shop.orders.route-regex": "("}, "iceberg.table.shop.orders.route-regex"),
        ({"iceberg.tables.default-partition-by": "dy(ts)"}, "iceberg.tables.default-partition-by"),
        (
            {"iceberg.tables.default-partition-by": "bucket(x)"},
            "iceberg.tables.default-partition-by",
        ),
        ({"iceberg.tables.default-sort-by": "id up"}, "iceberg.tables.default-sort-by"),
        ({"iceberg.table.shop.orders.sort-by": "id,id"}, "iceberg.table.shop.orders.sort-by"),
        ({"iceberg.table.shop.orders.sort-enabled": "x"}, "iceberg.table.shop.orders.sort-enabled"),
        (
            {"iceberg.tables.write-distribution-mode": "range"},
            "iceberg.tables.write-distribution-mode",
        ),
        ({"iceberg.tables.default-location": "lake/x"}, "iceberg.tables.default-location"),
        ({"iceberg.table.shop.orders.location": "${x}"}, "iceberg.table.shop.orders.location"),
        ({"iceberg.tables.timestamp-unit": "min"}, "iceberg.tables.timestamp-unit"),
        ({"iceberg.tables.unmatched": "x"}, "iceberg.tables.unmatched"),
        ({"name": "a/b"}, "name"),
        ({"name": ""}, "name"),
        ({"transforms": "t"}, "transforms.t.type"),
        ({"consumer.override.max.poll.records": "x"}, "consumer.override.max.poll.records"),
        ({"consumer.override.sasl.jaas.config": "x"}, "consumer.override.sasl.jaas.config"),
        (
            {"consumer.override.auto.offset.reset": "by_duration:1h"},
            "consumer.override.auto.offset.reset",
        ),
        ({"icefloe.start.timestamp": "yesterday"}, "icefloe.start.timestamp"),
        ({"icefloe.start.offsets": "orders:0:1"}, "icefloe.start.offsets"),
        ({"producer.override.interceptor.classes": "x"}, "producer.override.interceptor.classes"),
        ({"iceberg.kafka.ssl.truststore.location": "x"}, "iceberg.kafka.ssl.truststore.location"),
    ],
)
def test_each_error_is_at_its_key(change: dict[str, str], key: str) -> None:
    """Each error is at the key that violates the rule."""
    assert key in errors({**GOOD, **change})


def test_dynamic_routing_needs_its_field() -> None:
    """Dynamic tables require a route field."""
    dynamic = {**GOOD, "iceberg.tables.dynamic-enabled": "true"}
    del dynamic["iceberg.tables"]
    assert "iceberg.tables.route-field" in errors(dynamic)
    assert parse({**dynamic, "iceberg.tables.route-field": "t"}).dynamic_enabled


def test_the_atomic_commit_is_no_property_of_the_catalog() -> None:
    """``iceberg.catalog.multi-table-commit`` is not passed to the catalog."""
    config = parse({**GOOD, "iceberg.catalog.multi-table-commit": "true"})
    assert config.multi_table_commit
    assert "multi-table-commit" not in config.catalog_properties


@pytest.mark.parametrize(
    ("catalog", "is_refused"),
    [
        ({"type": "jdbc", "uri": "jdbc:sqlite:x"}, True),
        ({"type": "glue"}, True),
        ({"catalog-impl": "org.apache.iceberg.hive.HiveCatalog"}, True),
        ({"catalog-impl": "org.apache.iceberg.rest.RESTCatalog"}, False),
        ({"uri": "https://catalog.example"}, False),
        ({"type": "${env:TYPE}"}, False),
    ],
)
def test_only_a_rest_catalog_commits_to_several_tables(
    catalog: dict[str, str], *, is_refused: bool
) -> None:
    """The error is at the key with the unresolvable placeholder."""
    raw = {k: v for k, v in GOOD.items() if not k.startswith("iceberg.catalog.")}
    raw |= {f"iceberg.catalog.{k}": v for k, v in catalog.items()}
    raw["iceberg.catalog.multi-table-commit"] = "true"
    errors = check_connector(raw).errors
    assert ("iceberg.catalog.multi-table-commit" in errors) is is_refused


def test_placeholders_are_resolved_for_numbers_alone() -> None:
    """Parsing does not resolve secrets."""
    raw = {**GOOD, "tasks.max": "${env:N}", "iceberg.catalog.token": "${env:SECRET}"}
    config = parse(raw, resolve=lambda text: "3" if text == "${env:N}" else "leak")
    assert config.tasks_max == 3
    assert config.catalog_properties["token"] == "${env:SECRET}"
    assert config.raw["tasks.max"] == "${env:N}"


@given(
    st.dictionaries(
        st.sampled_from([key.name for key in FRAMEWORK_KEYS + CONNECTOR_KEYS]),
        st.text(max_size=20),
        max_size=8,
    )
)
def test_any_value_is_accepted_or_refused_at_its_key(change: dict[str, str]) -> None:
    """For any values, the result is a configuration or an error with its keys."""
    with contextlib.suppress(InvalidConfigError):
        assert parse({**GOOD, **change}).raw == {**GOOD, **change}


def test_the_dead_letter_table_is_a_separate_table() -> None:
    """It needs a namespace and cannot be a target of records."""
    key = "errors.deadletterqueue.table"
    for wrong in ("letters", "a..b", "shop.orders", "shop.${env:X}"):
        assert list(errors({**GOOD, key: wrong})) == [key]
    assert parse({**GOOD, key: "a.b"}).errors.dead_letter_table == "a.b"
    namespace = {"iceberg.tables.default-namespace": "shop"}
    assert parse({**GOOD, **namespace, key: "b"}).errors.dead_letter_table == "shop.b"
    assert list(errors({**GOOD, **namespace, key: "orders"})) == [key]
    assert parse(GOOD).errors.dead_letter_table is None
