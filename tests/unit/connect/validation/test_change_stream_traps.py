"""Traps of change streams that a configuration shows, and configurations that have none."""

from __future__ import annotations

import pytest

from connect.validation import change_stream_traps
from tests.support.connector_json import BY_TOPIC, LETTERS, ORDERS, errors, validated

CONVERTERS = "org.apache.kafka.connect"
JSON = f"{CONVERTERS}.json.JsonConverter"
STRING = f"{CONVERTERS}.storage.StringConverter"
SCHEMALESS = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
UPSERTS = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}
OPERATION = {"iceberg.tables.cdc-field": "_cdc.op"}
CREATED = {"iceberg.tables.auto-create-enabled": "true", "key.converter": STRING}
NO_KEY_APPENDS = {"iceberg.tables.no-key": "append"}
DYNAMIC = {
    "iceberg.tables": "",
    "iceberg.tables.dynamic-enabled": "true",
    "iceberg.tables.route-field": "__table",
}


def steps(*classes: str) -> dict[str, str]:
    """Return the keys of transformations."""
    types = {f"transforms.t{i}.type": name for i, name in enumerate(classes)}
    return {"transforms": ",".join(f"t{i}" for i in range(len(classes))), **types}


DEBEZIUM = steps("org.apache.iceberg.connect.transforms.DebeziumTransform")
DMS = steps("org.apache.iceberg.connect.transforms.DmsTransform")
STATE = steps("io.debezium.transforms.ExtractNewRecordState")
REWRITE = {"transforms.t0.delete.tombstone.handling.mode": "rewrite"}
TRAPS: list[tuple[str, dict[str, str], str]] = [
    (
        "changes_without_schema",
        {**DEBEZIUM, **SCHEMALESS},
        "value.converter.schemas.enable is false: by Debezium's defaults",
    ),
    (
        "changes_without_schema",
        {**UPSERTS, "iceberg.tables.cdc-field": "__deleted", **SCHEMALESS},
        "value.converter.schemas.enable is false: by Debezium's defaults",
    ),
    (
        "types_without_schema",
        {**SCHEMALESS, "icefloe.debezium.types": "typed"},
        "icefloe.debezium.types is typed, but value.converter.schemas.enable is false",
    ),
    (
        "keys_without_fields",
        {**CREATED, "iceberg.tables.upsert-mode-enabled": "true"},
        "key.converter gives keys without fields",
    ),
    (
        "keys_without_fields",
        {**CREATED, **OPERATION, "key.converter": "ByteArrayConverter"},
        "Set iceberg.tables.default-id-columns or iceberg.table.<name>.id-columns",
    ),
    (
        "deletes_are_rows",
        {**DEBEZIUM, **UPSERTS},
        "deletes of DebeziumTransform are written as rows. Set iceberg.tables.cdc-field=_cdc.op",
    ),
    (
        "keyless_changes_without_target",
        {**UPSERTS, **NO_KEY_APPENDS},
        "iceberg.tables.no-key is append, but no dead letters are set",
    ),
    (
        "keyless_changes_without_target",
        {**UPSERTS, f"{ORDERS}no-key": "append"},
        "or iceberg.tables.no-key-changes=append",
    ),
    ("deletes_are_rows", {**DMS, **UPSERTS}, "deletes of DmsTransform are written as rows"),
    (
        "deletes_are_rows",
        {**DEBEZIUM, **UPSERTS, "iceberg.tables.cdc-field": "op"},
        "iceberg.tables.cdc-field is op, but DebeziumTransform has the operation in _cdc.op",
    ),
    (
        "record_states",
        {**STATE, **SCHEMALESS},
        "ExtractNewRecordState passes values without a schema unchanged",
    ),
    (
        "record_states",
        {**STATE, "transforms.t0.drop.tombstones": "false"},
        "transforms.t0.drop.tombstones has no effect since Debezium 3",
    ),
    (
        "record_states",
        {**STATE, **UPSERTS, **REWRITE},
        "deletes of ExtractNewRecordState are written as rows. Set iceberg.tables.cdc-field",
    ),
    (
        "tombstones_without_table",
        {**DYNAMIC, **UPSERTS},
        "iceberg.tables.route-field uses the field __table, which message keys do not have",
    ),
    (
        "tombstones_without_table",
        {**DYNAMIC, **UPSERTS, "iceberg.tables.route-field": "kind", "key.converter": STRING},
        "iceberg.tables.route-field uses the field kind",
    ),
    (
        "tombstones_without_table",
        {
            **UPSERTS,
            "iceberg.tables.route-field": "__table",
            f"{ORDERS}route-regex": "orders",
            "iceberg.table.shop.refunds.route-regex": "refunds",
        },
        "iceberg.tables.route-field uses the field __table",
    ),
    (
        "tombstones_without_table",
        {
            **UPSERTS,
            "topics": "orders",
            "iceberg.tables": "shop.orders",
            "iceberg.tables.route-field": "__table",
            f"{ORDERS}route-regex": "orders",
        },
        "iceberg.tables.route-field uses the field __table",
    ),
    (
        "tombstones_without_table",
        {**BY_TOPIC, **UPSERTS, "iceberg.tables.name-template": "${__table}.${topic}_${__db}"},
        "iceberg.tables.name-template uses the field __table",
    ),
]
NO_KEY = {**CREATED, "iceberg.tables.upsert-mode-enabled": "true"}
SAFE: list[tuple[str, dict[str, str]]] = [
    ("schemas", {**DEBEZIUM, "value.converter": JSON}),
    ("schema.content", {**DEBEZIUM, **SCHEMALESS, "value.converter.schema.content": "{}"}),
    ("the unit is known", {**DEBEZIUM, **SCHEMALESS, "iceberg.tables.timestamp-unit": "us"}),
    ("no envelope", SCHEMALESS),
    ("types with schemas", {"value.converter": JSON, "icefloe.debezium.types": "typed"}),
    ("key columns of all tables", {**NO_KEY, "iceberg.tables.default-id-columns": "id"}),
    ("key columns of a table", {**NO_KEY, f"{ORDERS}id-columns": "id"}),
    ("keys with fields", {**NO_KEY, "key.converter": JSON}),
    ("keys of a topic", {**NO_KEY, "icefloe.topic.orders.key.converter": JSON}),
    ("the node's key converter", {**NO_KEY, "key.converter": ""}),
    ("identifier fields are possible", {**NO_KEY, "iceberg.tables.auto-create-enabled": "false"}),
    ("rows are added", CREATED),
    (
        "keys are made",
        {
            **NO_KEY,
            **steps(f"{CONVERTERS}.transforms.HoistField$Key"),
            "transforms.t0.field": "id",
        },
    ),
    ("changes without key are dead letters", {**UPSERTS, **NO_KEY_APPENDS, LETTERS: "letters"}),
    (
        "changes without key are appended",
        {**UPSERTS, **NO_KEY_APPENDS, "iceberg.tables.no-key-changes": "append"},
    ),
    (
        "changes without key of the only such table are appended",
        {**UPSERTS, f"{ORDERS}no-key": "append", f"{ORDERS}no-key-changes": "append"},
    ),
    ("no record changes rows", NO_KEY_APPENDS),
    ("the operation is read", {**DEBEZIUM, **UPSERTS, **OPERATION}),
    ("changes are added", DEBEZIUM),
    (
        "the operation is moved",
        {
            **UPSERTS,
            **steps("DebeziumTransform", f"{CONVERTERS}.transforms.Flatten$Value"),
            "iceberg.tables.cdc-field": "_cdc.op.x",
        },
    ),
    (
        "deletes are dropped",
        {
            **UPSERTS,
            **steps("DebeziumTransform", f"{CONVERTERS}.transforms.Filter"),
            "transforms.t1.predicate": "p",
            "predicates": "p",
            "predicates.p.type": f"{CONVERTERS}.transforms.predicates.RecordIsTombstone",
        },
    ),
    ("the key may have the field", {**DYNAMIC, **UPSERTS, "iceberg.tables.route-field": "kind"}),
    ("tombstones", {**STATE, **UPSERTS}),
    (
        "deletes are rows that __deleted marks",
        {**STATE, **UPSERTS, **REWRITE, "iceberg.tables.cdc-field": "__deleted"},
    ),
    ("deletes are marked", {**DYNAMIC, **UPSERTS, "iceberg.tables.cdc-field": "__deleted"}),
    ("no changes", DYNAMIC),
    ("topics", {**BY_TOPIC, **UPSERTS, "iceberg.tables.name-template": "shop.${topic}"}),
]


@pytest.mark.parametrize(("rule", "change", "message"), TRAPS)
def test_a_trap_is_a_warning(rule: str, change: dict[str, str], message: str) -> None:
    """The configuration is accepted, and one warning says what to set."""
    assert rule in {each.__name__ for each in change_stream_traps.RULES}
    assert errors(change) == {}
    (warning,) = validated(change).warnings
    assert message in warning
    assert "Set " in warning or " set " in warning


@pytest.mark.parametrize("change", [change for _, change in SAFE], ids=[name for name, _ in SAFE])
def test_another_configuration_has_no_warning(change: dict[str, str]) -> None:
    """What the configuration does not show is no warning."""
    assert (errors(change), validated(change).warnings) == ({}, ())


def test_every_trap_is_tested() -> None:
    """Each rule has a case and documentation."""
    assert {case[0] for case in TRAPS} == {rule.__name__ for rule in change_stream_traps.RULES}
    assert all(rule.__doc__ for rule in change_stream_traps.RULES)
