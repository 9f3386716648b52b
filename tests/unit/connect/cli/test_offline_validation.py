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
    assert (done.status, done.stderr) == (ExitStatus.DONE, "")


def test_a_key_of_all_tables_that_is_written_as_one_of_a_table_is_recognized(
    tmp_path: Path,
) -> None:
    """``iceberg.table.`` needs the name of a table, so ``iceberg.tables.`` was meant."""
    done = _validated(tmp_path, {"iceberg.table.auto-create-enabled": "true"})
    assert "Did you mean iceberg.tables.auto-create-enabled?" in done.stderr
