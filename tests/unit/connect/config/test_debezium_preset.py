"""Presets of ``icefloe.debezium``: effective values, and keys that win over them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from connect.config.debezium_preset import PRESETS
from connect.config.keys.connector_keys import KEYS
from connect.records.row_operations import Keyless
from connect.validation.parse import parse
from tests.support.connector_json import LETTERS, changed, errors, validated

PAGE = Path(__file__).parents[4] / "docs/how-to/from-a-database.md"
UPSERTS = {"iceberg.tables.upsert-mode-enabled": "true", LETTERS: "letters"}
NO_KEY, NO_KEY_CHANGES = "iceberg.tables.no-key", "iceberg.tables.no-key-changes"
UNAVAILABLE = "iceberg.tables.unavailable-value"


def effective(change: dict[str, str]) -> dict[str, str | None]:
    """Return the values that validation shows."""
    return {info.name: info.value for info in validated(change).configs}


@pytest.mark.parametrize("name", PRESETS)
def test_validation_shows_the_values_of_a_preset(name: str) -> None:
    """They are valid values of declared keys, and the connector uses them."""
    change = {**UPSERTS, "icefloe.debezium": name}
    assert errors(change) == {}
    assert validated(change).warnings == ()
    shown = effective(change)
    assert PRESETS[name].items() <= shown.items()
    assert PRESETS[name].keys() <= KEYS.keys()
    config = parse({**changed(change), "tasks.max": "1"})
    assert Keyless.of(config.table("shop.orders")) is Keyless.APPEND_INSERTS
    assert config.errors.refuses_unavailable is (shown[UNAVAILABLE] == "error")


def test_without_preset_the_defaults_hold() -> None:
    """Nothing is set without the key."""
    shown = effective(UPSERTS)
    assert {key: shown[key] for key in (NO_KEY, NO_KEY_CHANGES, UNAVAILABLE)} == {
        NO_KEY: "error",
        NO_KEY_CHANGES: "dead-letter",
        UNAVAILABLE: "store",
    }


def test_a_key_wins_over_its_preset() -> None:
    """A key of the connector, or of a table, is used although a preset has another value."""
    own = {NO_KEY: "error", UNAVAILABLE: "store", "iceberg.table.shop.refunds.no-key": "append"}
    change = {**UPSERTS, "icefloe.debezium": "postgres", **own}
    shown = effective(change)
    assert (shown[NO_KEY], shown[UNAVAILABLE]) == ("error", "store")
    config = parse({**changed(change), "tasks.max": "1"})
    assert Keyless.of(config.table("shop.orders")) is Keyless.REFUSE
    assert Keyless.of(config.table("shop.refunds")) is Keyless.APPEND_INSERTS


def test_a_warning_follows_the_preset() -> None:
    """Changes without key need dead letters, which a preset cannot name."""
    change = {**UPSERTS, LETTERS: "", "icefloe.debezium": "mysql"}
    assert "no dead letters are set" in "".join(validated(change).warnings)
    assert validated({**change, NO_KEY_CHANGES: "append"}).warnings == ()


def test_an_unknown_preset_is_refused() -> None:
    """The message lists the databases."""
    (text,) = errors({"icefloe.debezium": "postgresql"})["icefloe.debezium"]
    assert all(name in text for name in PRESETS)


def test_the_page_has_the_values_of_each_preset() -> None:
    """The table of connectors and presets is that of the code."""
    rows = re.findall(r"^\| `(\w+)` \|(.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    documented = {
        name: dict(re.findall(r"`([\w.-]+)=([\w-]+)`", text))
        for name, text in rows
        if name in PRESETS
    }
    assert documented == {name: dict(values) for name, values in PRESETS.items()}
