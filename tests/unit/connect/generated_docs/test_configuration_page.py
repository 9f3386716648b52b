"""Every key is documented, and used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from connect.config.keys.connector_keys import CONNECTOR_KEYS, FRAMEWORK_KEYS, TABLE_KEYS
from connect.config.node.node_keys import NODE_KEYS
from connect.generated_docs import connector_schema
from connect.generated_docs.configuration_page import render

ROOT = Path(__file__).parents[4]
DECLARING = {
    "framework_keys.py",
    "iceberg_keys.py",
    "lineage_keys.py",
    "node_keys.py",
    "notification_keys.py",
    "docs.py",
}


def sources() -> str:
    """All product code except the declarations."""
    return "\n".join(
        path.read_text()
        for package in ("connect", "worker", "coordinator")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in DECLARING
    )


def test_the_page_is_up_to_date() -> None:
    """``docs/reference/configuration.md`` is what ``make docs`` writes."""
    assert (ROOT / "docs/reference/configuration.md").read_text() == render()


def test_the_schema_for_editors_is_up_to_date() -> None:
    """``docs/reference/connector.schema.json`` is what ``make docs`` writes."""
    assert (ROOT / "docs/reference/connector.schema.json").read_text() == connector_schema.render()


@pytest.fixture(scope="module")
def editor() -> Draft202012Validator:
    """What an editor makes of the schema."""
    Draft202012Validator.check_schema(connector_schema.schema())
    return Draft202012Validator(connector_schema.schema())


@pytest.mark.parametrize(
    "example",
    sorted(p for p in (ROOT / "examples").glob("*/*.json") if p.name != "datagen.json"),
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)
def test_the_schema_accepts_every_example(editor: Draft202012Validator, example: Path) -> None:
    """In both shapes."""
    given = json.loads(example.read_text("utf-8"))
    assert [error.message for error in editor.iter_errors(given)] == []


def test_a_file_may_name_the_schema(editor: Draft202012Validator) -> None:
    """In both shapes, as docs/how-to/connectors-in-git.md shows; the schema has an identifier."""
    config = {"connector.class": "IcebergSinkConnector", "topics": "t"}
    named = {"$schema": "connector.schema.json", "name": "c"}
    assert editor.is_valid({**named, "config": config})
    assert editor.is_valid({**named, **config})
    assert connector_schema.schema()["$id"] == "urn:icefloe:connector"


@pytest.mark.parametrize(
    "wrong",
    [
        {"iceberg.control.commit.interval-ms": "soon"},
        {"iceberg.tables.timestamp-unit": "min"},
        {"icefloe.nothing": "1"},
    ],
)
def test_the_schema_refuses_mistakes(editor: Draft202012Validator, wrong: dict[str, str]) -> None:
    """Unknown names, wrong types and choices, in either shape; a placeholder is valid."""
    config = {"connector.class": "IcebergSinkConnector", "topics": "t", **wrong}
    assert not editor.is_valid(config)
    assert not editor.is_valid({"name": "c", "config": config})
    (name,) = wrong
    if "." in name and name in {key.name for key in CONNECTOR_KEYS}:
        assert editor.is_valid({**config, name: "${file:f:k}"})


@pytest.mark.parametrize(
    "name", ["iceberg.tables.evolve-schema-enable", "iceberg.table.db.t.partition_by"]
)
def test_keys_without_effect_are_deprecated_in_the_schema(
    editor: Draft202012Validator, name: str
) -> None:
    """The Java sink accepts unknown ``iceberg.*`` keys, so they are valid."""
    config = {"connector.class": "IcebergSinkConnector", "topics": "t", name: "true"}
    assert editor.is_valid(config)
    patterns = connector_schema.schema()["$defs"]["config"]["patternProperties"]
    found = [shape for pattern, shape in patterns.items() if re.search(pattern, name)]
    assert any(shape.get("deprecated") for shape in found)


def test_every_key_has_a_sentence() -> None:
    """One line."""
    for key in (*FRAMEWORK_KEYS, *CONNECTOR_KEYS, *TABLE_KEYS, *NODE_KEYS):
        assert key.doc.endswith("."), key.name
        assert "\n" not in key.doc, key.name


def test_every_key_is_used() -> None:
    """It has an effect, or the reason why it has none."""
    code = sources()
    kinds = ("key.converter", "value.converter", "header.converter")  # read as f"{kind}.converter"
    unused = [
        key.name
        for key in (*FRAMEWORK_KEYS, *CONNECTOR_KEYS, *TABLE_KEYS, *NODE_KEYS)
        if key.java_only is None and key.name not in kinds and f'"{key.name}"' not in code
    ]
    assert unused == []
