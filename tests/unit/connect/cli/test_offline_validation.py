"""``icefloe validate`` without a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connect.errors import ExitStatus
from tests.support.command_line import CommandResult, icefloe


def _validated(tmp_path: Path, keys: dict[str, str]) -> CommandResult:
    file = tmp_path / "orders.json"
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
        "iceberg.tables": "shop.orders",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://catalog:8181",
    }
    file.write_text(json.dumps({"name": "orders", "config": config | keys}))
    return icefloe("validate", "-f", str(file))


@pytest.mark.parametrize(
    "key",
    ["key.converter", "value.converter", "header.converter", "icefloe.topic.t.value.converter"],
)
def test_a_converter_that_is_not_installed_is_named(tmp_path: Path, key: str) -> None:
    """A user of Kafka Connect may have converters in Java, which are not loaded."""
    done = _validated(tmp_path, {key: "com.acme.OwnConverter"})
    assert done.status == ExitStatus.NO
    assert f"orders: {key}: Invalid value com.acme.OwnConverter" in done.stderr


def test_a_wrong_option_of_a_converter_is_named(tmp_path: Path) -> None:
    """Before the connector is sent to a node."""
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    option = "value.converter.schemas.enable"
    done = _validated(tmp_path, {"value.converter": json_converter, option: "perhaps"})
    assert done.status == ExitStatus.NO
    assert option in done.stderr


def test_converters_of_placeholders_and_aliases_are_accepted(tmp_path: Path) -> None:
    """A placeholder has its value on the node."""
    done = _validated(
        tmp_path, {"value.converter": "JsonConverter", "key.converter": "${env:KEY_CONVERTER}"}
    )
    note = "not asked: brokers, catalog, object store, schema registries; use --server URL\n"
    assert (done.status, done.stderr) == (ExitStatus.DONE, note)


def test_a_key_of_all_tables_that_is_written_as_one_of_a_table_is_recognized(
    tmp_path: Path,
) -> None:
    """``iceberg.table.`` needs the name of a table, so ``iceberg.tables.`` was meant."""
    done = _validated(tmp_path, {"iceberg.table.auto-create-enabled": "true"})
    assert "Did you mean iceberg.tables.auto-create-enabled?" in done.stderr


INTERVAL = "iceberg.control.commit.interval-ms"
JSON = "org.apache.kafka.connect.json.JsonConver"
MASK = "org.apache.kafka.connect.transforms.MaskField"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required password="canary";'


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (INTERVAL, "10s", "milliseconds: 10000"),
        (INTERVAL, "5 min", "milliseconds: 300000"),
        ("tasks.max", "many", "Not a number of type INT"),
        ("connector.class", "IcebergSinc", "Did you mean IcebergSink?"),
        ("value.converter", f"{JSON}tor", f"Did you mean {JSON}ter?"),
        ("value.converter", "JsonConvertor", "Did you mean JsonConverter?"),
        ("transforms.m.type", f"{MASK}s$Value", f"Did you mean {MASK}$Value?"),
        ("transforms.m.type", "ParseTimestamps", "Did you mean ParseTimestamp?"),
        ("predicates.m.type", "TopicNamesMatches", "Did you mean TopicNameMatches?"),
        ("consumer.override.sasl.jaas.config", JAAS, "all connectors have the login of the node"),
    ],
)
def test_an_error_says_what_to_write(tmp_path: Path, key: str, value: str, text: str) -> None:
    """One error, with the value or the nearest name; a value that may be secret is not shown."""
    alias = {"transforms": "transforms", "predicates": "predicates"}.get(key.partition(".")[0])
    done = _validated(tmp_path, {key: value, **({alias: "m"} if alias else {})})
    assert done.status == ExitStatus.NO
    lines = [line for line in done.stderr.splitlines() if f" {key}: " in line]
    assert len(lines) == 1, done.stderr
    assert text in lines[0]
    assert "1 error(s)" in done.stderr
    assert "canary" not in done.stderr


def test_a_name_that_resembles_none_gets_no_suggestion(tmp_path: Path) -> None:
    """The sentence is Kafka's."""
    done = _validated(tmp_path, {"value.converter": "com.acme.Own"})
    assert "Class com.acme.Own could not be found.\n" in done.stderr
