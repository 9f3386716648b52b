"""Keys that have no effect, or another than one may think."""

from __future__ import annotations

import pytest

from connect.validation import change_stream_traps, ignored_keys
from tests.support.connector_json import (
    AT,
    BY_TOPIC,
    CATALOG,
    LETTERS,
    MAP,
    NEW,
    ORDERS,
    errors,
    validated,
)

IDLE: list[tuple[str, dict[str, str], str]] = [
    (
        "dead_letters_need_tolerance",
        {LETTERS: "letters"},
        f"{LETTERS} has no effect: errors.tolerance",
    ),
    (
        "tolerated_records_are_dropped",
        {"errors.tolerance": "all"},
        "errors.tolerance is all, but no",
    ),
    (
        "refused_tables_need_tolerance",
        {"iceberg.tables.refused": "dead-letter"},
        "iceberg.tables.refused has no effect: errors.tolerance is none",
    ),
    (
        "headers_need_a_dead_letter_topic",
        {"errors.deadletterqueue.context.headers.enable": "true"},
        "errors.deadletterqueue.context.headers.enable has no effect",
    ),
    (
        "route_regexes_need_a_route_field",
        {f"{ORDERS}route-regex": "o"},
        f"{ORDERS}route-regex has no effect",
    ),
    (
        "route_regexes_need_a_route_field",
        {"iceberg.tables.route-field": "kind", f"{ORDERS}route-regex": "o"},
        "iceberg.tables.route-field sends no records to shop.refunds",
    ),
    (
        "route_field_needs_static_tables",
        {
            **BY_TOPIC,
            MAP: "orders:orders,refunds:refunds",
            "iceberg.tables.route-field": "kind",
        },
        "iceberg.tables.route-field has no effect: topic map or name template",
    ),
    (
        "creation_is_off",
        {"iceberg.tables.default-partition-by": "day(ts)"},
        "iceberg.tables.default-partition-by has no effect",
    ),
    ("creation_is_off", {f"{ORDERS}partition-by": "x"}, f"{ORDERS}partition-by has no effect"),
    ("creation_is_off", {f"{ORDERS}sort-by": "x"}, f"{ORDERS}sort-by has no effect"),
    ("creation_is_off", {AT: "/lake/${table}"}, f"{AT} has no effect"),
    ("creation_is_off", {f"{NEW}x": "1"}, f"{NEW}x has no effect"),
    (
        "evolution_is_off",
        {"iceberg.tables.max-new-columns": "5"},
        "iceberg.tables.max-new-columns has no effect",
    ),
    (
        "evolution_is_off",
        {"iceberg.tables.schema-force-optional": "true"},
        "iceberg.tables.schema-force-optional has no effect",
    ),
    ("listed_aliases", {"transforms.a.type": "x"}, "transforms.a.type has no effect: a is not in"),
    ("listed_aliases", {"predicates.p.type": "x"}, "predicates.p.type has no effect"),
    ("fixed_overrides", {"producer.override.acks": "1"}, "producer.override.acks has no effect"),
    (
        "fixed_overrides",
        {"consumer.override.isolation.level": "read_uncommitted"},
        "the value is always read_committed",
    ),
    (
        "fixed_overrides",
        {"consumer.override.auto.offset.reset": "none"},
        "consumer.override.auto.offset.reset is none, which is treated as earliest",
    ),
    (
        "fixed_overrides",
        {"consumer.override.foo": "1"},
        "Kafka's clients do not have this property",
    ),
    (
        "java_catalog_keys",
        {f"{CATALOG}cache-enabled": "true"},
        f"{CATALOG}cache-enabled has no effect",
    ),
    ("java_catalog_keys", {f"{CATALOG}io-impl": "my.IO"}, f"{CATALOG}io-impl has no effect"),
    (
        "unknown_keys",
        {"iceberg.tablez": "1"},
        "iceberg.tablez has no effect: Unknown configuration iceberg.tablez. Did you mean",
    ),
    (
        "unknown_keys",
        {"iceberg.control.commit.interval.ms": "1"},
        "Did you mean iceberg.control.commit.interval-ms?",
    ),
    (
        "unknown_keys",
        {f"{ORDERS}partition_by": "id"},
        f"{ORDERS}partition_by has no effect: Unknown table setting",
    ),
]


@pytest.mark.parametrize(("rule", "change", "message"), IDLE)
def test_a_key_without_effect_is_a_warning(rule: str, change: dict[str, str], message: str) -> None:
    """It is accepted, and the warning contains the key."""
    assert rule in {each.__name__ for each in ignored_keys.RULES}
    assert errors(change) == {}
    (warning,) = validated(change).warnings
    assert message in warning


@pytest.mark.parametrize(
    "name",
    [
        "iceberg.hadoop.fs.s3a.endpoint",
        "iceberg.hadoop-conf-dir",
        "iceberg.control.group-id-prefix",
        "iceberg.coordinator-executor-keep-alive-timeout-ms",
        "iceberg.control.commit.max-consecutive-failures",
        "connector.plugin.version",
        "tasks.max.enforce",
        "config.action.reload",
    ],
)
def test_java_only_keys_are_recognised(name: str) -> None:
    """Keys without effect are logged and are not errors."""
    value = {"tasks.max.enforce": "true", "config.action.reload": "none"}.get(name, "1")
    value = "latest" if name == "connector.plugin.version" else value
    found = validated({name: value})
    assert found.errors == ()
    (warning,) = found.warnings
    assert warning.startswith(f"{name} has no effect: ")


def test_every_rule_is_tested() -> None:
    """Each warning rule has a test case and documentation."""
    others = set(change_stream_traps.RULES)
    assert {case[0] for case in IDLE} == {
        rule.__name__ for rule in ignored_keys.RULES if rule not in others
    }
    assert all(rule.__doc__ for rule in ignored_keys.RULES)
