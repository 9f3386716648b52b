"""Keys that do not go together, and keys that have no effect."""

from __future__ import annotations

import pytest

from connect.config.source_group import source_group
from connect.validation import cross_key_rules
from connect.validation.cross_key_rules import check_sink
from connect.validation.key_checks import check_connector
from connect.validation.parse import parse
from tests.support.connector_json import (
    AGGREGATE,
    AT,
    BY_TOPIC,
    CATALOG,
    GOOD,
    LETTERS,
    MAP,
    NEW,
    ORDERS,
    changed,
    errors,
    validated,
)

DELTA = {
    "icefloe.format": "delta",
    "icefloe.delta.location": "/lake",
    f"{CATALOG}type": "",
    f"{CATALOG}uri": "",
}
PARQUET = {
    "icefloe.format": "parquet",
    "icefloe.parquet.location": "/lake",
    f"{CATALOG}type": "",
    f"{CATALOG}uri": "",
}
AUTO = {"iceberg.tables.auto-create-enabled": "true"}
ALERTS = {"icefloe.outputs": "alerts", "icefloe.output.alerts.topic": "alerts"}
ALERTS_TOPIC = "icefloe.output.alerts.topic"
ROWS = {
    **ALERTS,
    "icefloe.format": "topic",
    "icefloe.rows.columns": "id BIGINT",
    "iceberg.tables": "",
    f"{CATALOG}type": "",
    f"{CATALOG}uri": "",
}

JOINED = {
    "transforms": "q",
    "transforms.q.type": "Sql",
    "transforms.q.columns": "id BIGINT",
    "transforms.q.query": ("SELECT r.id, l.device, l.amount FROM records r JOIN l ON l.id = r.id"),
    "transforms.q.table.l": "db.l",
}


WRONG: list[tuple[str, dict[str, str], str, str]] = [
    *(
        ("topic_keys", {**ROWS, key: value}, key, "the connector has no tables")
        for key, value in (
            ("iceberg.tables", "shop.orders"),
            ("iceberg.tables.auto-create-enabled", "true"),
            ("iceberg.tables.write-distribution-mode", "hash"),
            ("iceberg.table.shop.orders.id-columns", "id"),
            ("iceberg.maintenance.expire-snapshots.enabled", "true"),
            ("errors.deadletterqueue.table", "shop.dead"),
            ("icefloe.output.alerts.tables", "shop.orders"),
        )
    ),
    ("topic_keys", {"icefloe.rows.columns": "id INT"}, "icefloe.rows.columns", "needs icefloe.f"),
    ("output_topics", {**ALERTS, ALERTS_TOPIC: "orders"}, ALERTS_TOPIC, "the connector reads it"),
    (
        "output_topics",
        {**ALERTS, "topics": "", "topics.regex": "ale.*"},
        ALERTS_TOPIC,
        "the connector reads it",
    ),
    ("output_topics", {**ALERTS, ALERTS_TOPIC: "control-iceberg"}, ALERTS_TOPIC, "control topic"),
    ("output_topics", {**ALERTS, LETTERS: "alerts"}, ALERTS_TOPIC, "the dead letter topic"),
    (
        "outputs_only_add",
        {**ALERTS, "iceberg.tables.upsert-mode-enabled": "true", f"{ORDERS}id-columns": "id"},
        "icefloe.outputs",
        "replace and delete others",
    ),
    (
        "output_tables",
        {**ALERTS, "icefloe.output.alerts.tables": "shop.order"},
        "icefloe.output.alerts.tables",
        "table shop.order. Did you mean shop.orders?",
    ),
    (
        "control_topic_is_not_a_source",
        {"iceberg.control.topic": "orders"},
        "topics",
        "control topic",
    ),
    (
        "dead_letter_topic_is_not_control_topic",
        {LETTERS: "control-iceberg"},
        LETTERS,
        "it is the control",
    ),
    ("dead_letter_topic_is_not_control_topic", {LETTERS: "a b"}, LETTERS, "1 to 249 letters"),
    ("topic_names_are_valid", {"topics": "a b"}, "topics", "1 to 249 letters"),
    (
        "replication_factor",
        {"errors.deadletterqueue.topic.replication.factor": "0"},
        "errors.deadletterqueue.topic.replication.factor",
        "at least 1, or -1",
    ),
    (
        "unmatched_records_need_a_target",
        {"iceberg.tables.unmatched": "dead-letter"},
        "iceberg.tables.unmatched",
        "errors.deadletterqueue.topic.name or errors.deadletterqueue.table",
    ),
    (
        "table_settings_need_a_table",
        {"iceberg.table.shop.order.id-columns": "id"},
        "iceberg.table.shop.order.id-columns",
        "Did you mean shop.orders?",
    ),
    (
        "table_settings_need_a_table",
        {
            "iceberg.tables": "orders",
            "iceberg.tables.default-namespace": "shop",
            "iceberg.table.orders.id-columns": "id",
        },
        "iceberg.table.orders.id-columns",
        "Did you mean shop.orders?",
    ),
    (
        "route_field_needs_a_regex",
        {"iceberg.tables.route-field": "kind"},
        "iceberg.tables.route-field",
        "set iceberg.table.shop.orders.route-regex",
    ),
    (
        "mapped_topics",
        {**BY_TOPIC, MAP: "orders:orders,refunds:refunds,refund:refunds"},
        MAP,
        "the topic is not in topics. Did you mean refunds?",
    ),
    ("mapped_topics", {**BY_TOPIC, MAP: "orders:orders"}, MAP, "Topic refunds is not in"),
    (
        "started_topics",
        {"icefloe.start.offsets": '{"order":{"0":1}}'},
        "icefloe.start.offsets",
        "topic order is not in topics. Did you mean orders?",
    ),
    (
        "mapped_tables",
        {**BY_TOPIC, MAP: "orders:orders,refunds:refunds", "iceberg.tables.max-tables": "1"},
        "iceberg.tables.max-tables",
        "contains 2 tables",
    ),
    (
        "named_topics",
        {"icefloe.topic.order.value.converter": "String"},
        "icefloe.topic.order.value.converter",
        "the topic order is not in topics. Did you mean orders?",
    ),
    (
        "named_topics",
        {"topics": "", "topics.regex": "shop-.*", "icefloe.topic.a.key.converter": "String"},
        "icefloe.topic.a.key.converter",
        "topics.regex does not match the topic a",
    ),
    (
        "matched_topics",
        {"icefloe.topic.x.value.converter": "String", "icefloe.topic.x.regex": "order"},
        "icefloe.topic.x.regex",
        "matches no topic",
    ),
    (
        "matched_topics",
        {
            "icefloe.topic.x.value.converter": "String",
            "icefloe.topic.x.regex": "o.*",
            "icefloe.topic.y.value.converter": "String",
            "icefloe.topic.y.regex": ".*s",
        },
        "icefloe.topic.y.regex",
        "icefloe.topic.x.regex matches topic orders, too",
    ),
    (
        "namespace_levels",
        {"iceberg.tables.default-namespace": "a..b"},
        "iceberg.tables.default-namespace",
        "a level of the namespace is empty",
    ),
    ("source_group_is_ascii", {"name": "日本語"}, "name", "use printable ASCII"),
    (
        "source_group_is_ascii",
        {"iceberg.connect.group-id": "a\tb"},
        "iceberg.connect.group-id",
        "use printable ASCII",
    ),
    ("id_columns", {f"{ORDERS}id-columns": "a,,b"}, f"{ORDERS}id-columns", "column name is empty"),
    (
        "id_columns",
        {"iceberg.tables.default-id-columns": "a,b,a"},
        "iceberg.tables.default-id-columns",
        "duplicated",
    ),
    (
        "partition_terms",
        {**AUTO, "iceberg.tables.default-partition-by": "day(ts), hour(ts)"},
        "iceberg.tables.default-partition-by",
        "redundant with 'day(ts)'",
    ),
    (
        "partition_terms",
        {**AUTO, f"{ORDERS}partition-by": "bucket(id, 4),bucket(id, 8)"},
        f"{ORDERS}partition-by",
        "already exists",
    ),
    ("locations", {**AUTO, AT: "s3://lake/${namespace}"}, AT, "add ${table}"),
    (
        "locations",
        {**AUTO, AT: "s3://lake/${table}", "errors.deadletterqueue.table": "dead.letters"},
        AT,
        "several namespaces (dead, shop); add ${namespace}",
    ),
    (
        "locations",
        {
            **AUTO,
            AT: "s3://lake/${table}",
            "iceberg.tables": "",
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "kind",
        },
        AT,
        "add ${namespace}",
    ),
    (
        "locations",
        {
            **AUTO,
            f"{ORDERS}location": "s3://lake/orders",
            "iceberg.table.shop.refunds.location": "s3://lake/orders/",
        },
        "iceberg.table.shop.refunds.location",
        "table shop.orders has this location",
    ),
    (
        "parquet_only",
        {"iceberg.tables.write-props.write.format.default": "orc"},
        "iceberg.tables.write-props.write.format.default",
        "only parquet is supported",
    ),
    (
        "format_version",
        {**AUTO, f"{NEW}format-version": "1"},
        f"{NEW}format-version",
        "versions 2 and 3",
    ),
    (
        "write_mode",
        {"iceberg.tables.write-mode": "copy-on-write"},
        "iceberg.tables.write-mode",
        "no record replaces or deletes rows",
    ),
    (
        "write_mode",
        {f"{ORDERS}write-mode": "merge"},
        f"{ORDERS}write-mode",
        "Must be merge-on-read or copy-on-write",
    ),
    (
        "catalog_properties",
        {f"{CATALOG}catalog-impl": "x"},
        f"{CATALOG}type",
        "Cannot create catalog iceberg, both type and catalog-impl are set: type=rest, cat",
    ),
    ("catalog_properties", {f"{CATALOG}uri": ""}, f"{CATALOG}uri", "Missing required"),
    (
        "catalog_properties",
        {f"{CATALOG}uri": "ftp://x"},
        f"{CATALOG}uri",
        "must begin with http://",
    ),
    ("catalog_properties", {f"{CATALOG}type": "sql"}, f"{CATALOG}warehouse", "Missing required"),
    (
        "catalog_properties",
        {f"{CATALOG}type": "jdbc", f"{CATALOG}warehouse": "/w", f"{CATALOG}uri": "jdbc:mysql://x"},
        f"{CATALOG}uri",
        "must start with sqlite:, postgresql:",
    ),
    (
        "catalog_properties",
        {f"{CATALOG}type": "hive"},
        f"{CATALOG}uri",
        "must begin with thrift://",
    ),
    (
        "catalog_properties",
        {f"{CATALOG}py-io-impl": "os.path"},
        f"{CATALOG}py-io-impl",
        "would import a Python module",
    ),
    (
        "equality_deletes",
        {
            "iceberg.tables.equality-deletes-enabled": "false",
            "iceberg.tables.deletion-vectors-enabled": "false",
        },
        "iceberg.tables.equality-deletes-enabled",
        "no way to remove rows is left",
    ),
    (
        "equality_deletes",
        {
            f"{ORDERS}equality-deletes-enabled": "false",
            f"{ORDERS}deletion-vectors-enabled": "false",
        },
        f"{ORDERS}equality-deletes-enabled",
        "no way to remove rows is left",
    ),
    (
        "type_conflict",
        {f"{ORDERS}type-conflict": "new-column"},
        f"{ORDERS}type-conflict",
        "set iceberg.tables.evolve-schema-enabled=true",
    ),
    (
        "catalog_properties",
        {f"{CATALOG}rest.auth.type": "kerberos"},
        f"{CATALOG}rest.auth.type",
        "'kerberos' is not supported",
    ),
    (
        "catalog_properties",
        {f"{CATALOG}rest.client.socket-timeout-ms": "soon"},
        f"{CATALOG}rest.client.socket-timeout-ms",
        "whole number",
    ),
    *(
        ("folder_keys", {**DELTA, key: value}, key, message)
        for key, value, message in (
            ("iceberg.tables.write-mode", "merge-on-read", "Delta tables have no delete files"),
            ("iceberg.tables.default-commit-branch", "b", "no branches"),
            ("iceberg.tables.deletion-vectors-enabled", "true", "get no deletion vectors"),
            (f"{ORDERS}deletion-vectors-enabled", "true", "get no deletion vectors"),
            (f"{ORDERS}commit-branch", "b", "no branches"),
            (f"{ORDERS}sort-by", "id", "no sort order"),
            ("iceberg.tables.sort-enabled", "true", "no sort order"),
            (f"{ORDERS}sort-enabled", "true", "no sort order"),
            ("iceberg.tables.default-location", "/a/${table}", "set icefloe.delta.location"),
            ("iceberg.catalog.uri", "http://c", "have no catalog"),
            ("iceberg.catalog.gcs.project-id", "p", "have no catalog"),
            ("iceberg.maintenance.window", "22:00-05:00", "use OPTIMIZE and VACUUM"),
            ("iceberg.tables.auto-create-props.format-version", "2", "Iceberg's format"),
            ("iceberg.tables.write-props.write.data.path", "/b", "below its location"),
            ("iceberg.tables.schema-case-insensitive", "false", "ignore the case"),
            ("icefloe.delta.location", "gs://b/t", "s3a:// and abfss://"),
            (f"{ORDERS}location", "hdfs://b/t", "s3a:// and abfss://"),
        )
    ),
    *(
        ("folder_keys", {**PARQUET, key: value}, key, message)
        for key, value, message in (
            ("iceberg.tables.upsert-mode-enabled", "true", "rows of Parquet folders are only"),
            ("iceberg.tables.cdc-field", "op", "rows of Parquet folders are only added"),
            ("iceberg.tables.default-location", "/a/${table}", "set icefloe.parquet.location"),
            ("iceberg.catalog.uri", "http://c", "Parquet folders have no catalog"),
            ("iceberg.catalog.adls.account-name", "a", "iceberg.catalog.s3.*"),
            ("iceberg.maintenance.window", "22:00-05:00", "neither compacted nor expired"),
            ("iceberg.tables.write-props.write.data.path", "/b", "below its location"),
            ("icefloe.parquet.location", "abfss://c@a/t", "s3:// and s3a://"),
            ("icefloe.delta.location", "/lake", "needs icefloe.format=delta"),
        )
    ),
    ("folder_keys", {"icefloe.delta.location": "/lake"}, "icefloe.delta.location", "needs"),
    ("folder_keys", {"icefloe.parquet.location": "/lake"}, "icefloe.parquet.location", "needs"),
    *(
        (
            "folder_partition_terms",
            {**PARQUET, "iceberg.tables.default-partition-by": f"day(ts),{term}"},
            "iceberg.tables.default-partition-by",
            message,
        )
        for term, message in (
            ("bucket(id, 4)", "by year, month, day or hour"),
            ("a.b", "top-level columns"),
            ("day(_ts)", "readers ignore folders"),
            ("_dt", "readers ignore folders"),
        )
    ),
    (
        "folder_partition_terms",
        {**DELTA, "iceberg.tables.default-partition-by": "country,day(ts)"},
        "iceberg.tables.default-partition-by",
        "'day(ts)' cannot be used",
    ),
    (
        "folder_partition_terms",
        {**DELTA, f"{ORDERS}partition-by": "a.b"},
        f"{ORDERS}partition-by",
        "top-level columns",
    ),
    (
        "aggregate_keys",
        {"icefloe.aggregate.window": "1 hour"},
        "icefloe.aggregate.window",
        "needs icefloe.format=aggregate",
    ),
    (
        "static_tables",
        {**ROWS, **JOINED},
        "transforms.q.table.l",
        "set iceberg.catalog.* to its catalog",
    ),
    (
        "aggregated_columns",
        {**dict.fromkeys(GOOD, ""), **AGGREGATE, **JOINED, "transforms.q.table.l": "/files"},
        "transforms.q.query",
        "no column ts",
    ),
]


@pytest.mark.parametrize(("rule", "change", "key", "message"), WRONG)
def test_each_rule_has_one_error(rule: str, change: dict[str, str], key: str, message: str) -> None:
    """At the key to change."""
    assert rule in {each.__name__ for each in cross_key_rules.RULES}
    found = errors(change)
    assert list(found) == [key]
    (sentence,) = found[key]
    assert message in sentence


def test_every_rule_is_tested() -> None:
    """Each rule has a test case and documentation."""
    assert {case[0] for case in WRONG} == {rule.__name__ for rule in cross_key_rules.RULES}
    assert all(rule.__doc__ for rule in cross_key_rules.RULES)


@pytest.mark.parametrize(
    "change",
    [
        {},
        ROWS,
        {**ROWS, "iceberg.tables.timestamp-unit": "s", f"{CATALOG}s3.region": "eu-central-1"},
        {"topics": "", "topics.regex": ".*", "iceberg.control.topic": "orders"},
        {"errors.deadletterqueue.topic.replication.factor": "-1"},
        {"iceberg.tables.unmatched": "dead-letter", LETTERS: "letters"},
        {f"{ORDERS}route-regex": "o", "iceberg.tables.route-field": "kind"},
        {
            "iceberg.tables": "",
            "iceberg.tables.dynamic-enabled": "true",
            "iceberg.tables.route-field": "kind",
            "iceberg.table.any.one.id-columns": "id",
        },
        {**BY_TOPIC, MAP: "orders:orders,refunds:refunds"},
        {**BY_TOPIC, MAP: "orders:orders", "iceberg.tables.name-template": "rest"},
        {**BY_TOPIC, MAP: "orders:orders", "iceberg.tables.unmatched": "drop"},
        {"errors.deadletterqueue.table": "shop.dead", "iceberg.table.shop.dead.commit-branch": "b"},
        {f"{ORDERS}partition-by": "day(a),day(b),bucket(a, 2)", **AUTO},
        {
            **AUTO,
            f"{NEW}format-version": "3",
            "iceberg.tables.upsert-mode-enabled": "true",
            f"{ORDERS}write-mode": "copy-on-write",
        },
        {AT: "s3://lake/${table}", f"{ORDERS}sort-by": "day(ts) desc,id nulls last", **AUTO},
        {AT: "${env:LAKE}/${namespace}/${table}", **AUTO},
        {
            **AUTO,
            **BY_TOPIC,
            "iceberg.tables.name-template": "${topic}_${a.b}",
            AT: "file:///lake/${table}",
        },
        {f"{CATALOG}type": "${env:TYPE}", f"{CATALOG}uri": ""},
        {f"{CATALOG}type": "sql", f"{CATALOG}uri": "${env:X}", f"{CATALOG}warehouse": "/w"},
        {f"{CATALOG}type": "glue", f"{CATALOG}uri": ""},
        {"iceberg.tables": "${env:TABLES}.x", "iceberg.table.a.b.id-columns": "id"},
        {
            "icefloe.topic.orders.value.converter": "String",
            "icefloe.topic.refunds.key.converter": "Json",
        },
        {
            "icefloe.topic.orders.value.converter": "String",
            "icefloe.topic.x.value.converter": "String",
            "icefloe.topic.x.regex": "o.*",
            "icefloe.topic.y.value.converter": "String",
            "icefloe.topic.y.regex": ".*s",
        },
        {"icefloe.topic.x.value.converter": "String", "icefloe.topic.x.regex": "${env:REGEX}"},
        {f"{NEW}format-version": "2", f"{NEW}write.format.default": "PARQUET", **AUTO},
        {f"{NEW}format-version": "3", **AUTO},
    ],
)
def test_valid_configurations_have_no_errors(change: dict[str, str]) -> None:
    """Values of placeholders are not reported."""
    assert check_sink(changed(change)).errors == {}


def test_rules_do_not_stop_a_stored_connector() -> None:
    """Parsing does not check them."""
    raw = changed({"iceberg.table.shop.order.id-columns": "id"})
    assert check_sink(raw).errors
    assert check_connector(raw).errors == {}
    assert parse({**raw, "connector.class": "IcebergSink"}).name == "orders"


@pytest.mark.parametrize(
    "name",
    [
        "iceberg.control.group-id",
        "iceberg.connect.group-id",
        "iceberg.tables.cdc-field",
        "iceberg.tables.upsert-mode-enabled",
        "iceberg.tables.default-id-columns",
        "iceberg.coordinator.transactional.suffix",
        "iceberg.kafka.client.id",
    ],
)
def test_keys_of_the_older_sink_are_known(name: str) -> None:
    """The JSON of `io.tabular` has no errors and no warnings."""
    value = "true" if name.endswith("enabled") else "x"
    found = validated(
        {"connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector", name: value}
    )
    assert (found.errors, found.warnings) == ((), ())


def test_groups_and_topics_of_others_are_refused() -> None:
    """Consumer groups of other connectors and topics of the nodes."""
    taken = {"groups": {"connect-orders": "connector old", "cg": "another"}}
    assert "belongs to connector old" in errors({}, **taken)["name"][0]
    found = errors({"iceberg.connect.group-id": "cg"}, **taken)
    assert list(found) == ["iceberg.connect.group-id"]
    assert errors({"consumer.override.group.id": "own"}, **taken) == {}


@pytest.mark.parametrize("key", ["topics", LETTERS, ALERTS_TOPIC])
def test_reserved_topics_hold_no_records(key: str) -> None:
    """Topics of control events, configurations or states hold no records, letters or rows."""
    taken = {"topics": frozenset({"nodes-config", "control-bob"})}
    for topic in ("nodes-config", "control-bob"):
        found = errors({**ALERTS, key: f"{topic}"}, **taken)
        assert list(found) == [key]
        assert "control events, configurations or states" in found[key][0]
    assert errors({**ALERTS, key: "free"}, **taken) == {}


def test_a_reserved_topic_among_others_is_found() -> None:
    """Each of the topics is checked."""
    taken = {"topics": frozenset({"control-bob"})}
    assert "control-bob" in errors({"topics": "orders,control-bob"}, **taken)["topics"][0]


def test_control_topics_hold_no_other_records() -> None:
    """The control topic is neither a topic of the nodes nor a source topic of a connector."""
    key = "iceberg.control.topic"
    found = errors({key: "nodes-config"}, own_topics=frozenset({"nodes-config"}))
    assert "belongs to the nodes or the broker" in found[key][0]
    found = errors({key: "sales"}, sources=frozenset({"sales"}))
    assert "another connector uses that topic" in found[key][0]


def test_a_control_topic_may_be_shared() -> None:
    """Connectors can share a control topic, as in the Java sink."""
    assert errors({}, topics=frozenset({"control-iceberg"})) == {}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"iceberg.connect.group-id": "a"},
        {"iceberg.control.group-id": "a"},
        {"consumer.override.group.id": "a"},
        {"connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"},
        {
            "connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector",
            "iceberg.control.group-id": "a",
            "iceberg.connect.group-id": "b",
        },
    ],
)
def test_connectors_are_compared_by_the_group_that_they_use(change: dict[str, str]) -> None:
    """Connectors are compared by the group that they use."""
    raw = changed(change)
    assert source_group(raw) == parse(raw).connect_group_id


def test_a_name_of_any_script_needs_a_group_in_ascii() -> None:
    """Kafka's client commits source offsets of no other group."""
    assert errors({**GOOD, "name": "日本語"}).keys() == {"name"}
    assert not errors({**GOOD, "name": "日本語", "iceberg.connect.group-id": "orders"})
