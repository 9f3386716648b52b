"""What is declared is used: keys, the fields they are parsed into, and metrics."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from connect.config import connector
from connect.config.key import Key
from connect.config.keys.connector_keys import CONNECTOR_KEYS, FRAMEWORK_KEYS
from connect.config.node import node_keys
from connect.metrics.metric_catalogue import CATALOGUE
from connect.validation.plugins import BUILT_IN
from connect.validation.validate import validate
from tests.support.sources import ROOT, modules, nodes

DECLARING = ("_keys.py", "metric_catalogue.py")
BY_PARTS = ("iceberg.table.", "transforms.", "predicates.", ".converter")
"""Families whose names are put together where they are read."""
KEYS = [
    key
    for key in (*FRAMEWORK_KEYS, *CONNECTOR_KEYS, *node_keys.NODE_KEYS)
    if key.java_only is None and not any(part in key.name for part in BY_PARTS)
]
CLASSES = (connector.ConnectorConfig, connector.ErrorsConfig, connector.TableConfig)


def using() -> Iterator[Path]:
    """The production modules that declare nothing."""
    for path in modules("connect", "worker", "coordinator"):
        if path.parent.name == "validation" or not path.name.endswith(DECLARING):
            yield path


@cache
def texts() -> frozenset[str]:
    """Every text in them that is no docstring."""
    return frozenset(
        node.value
        for path in using()
        for node in nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def attributes() -> frozenset[str]:
    """Every attribute that is read in them."""
    return frozenset(
        node.attr
        for path in using()
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


def fields() -> Iterator[str]:
    """Fields of a parsed configuration."""
    for kind in CLASSES:
        yield from (field.name for field in dataclasses.fields(kind))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_a_key_with_effect_is_read(key: Key) -> None:
    """The code reads each key, or its declaration says why it has no effect."""
    assert key.name in texts()


@pytest.mark.parametrize("name", sorted(set(fields())))
def test_a_parsed_field_is_read(name: str) -> None:
    """Each field of the parsed configuration is read by the code."""
    assert name in attributes()


@pytest.mark.parametrize("name", [metric.name for metric in CATALOGUE])
def test_each_metric_of_the_catalogue_is_set(name: str) -> None:
    """A metric of the catalogue is counted or set somewhere."""
    assert name in texts()


def test_a_key_without_effect_says_so() -> None:
    """Validation, log and configuration page contain the reason why a key has no effect."""
    given = {
        "errors.retry.timeout": "60000",
        "errors.retry.delay.max.ms": "1000",
        "iceberg.control.vtts.heartbeat-ms": "5000",
    }
    plugin = BUILT_IN.connector("org.apache.iceberg.connect.IcebergSinkConnector")
    assert plugin is not None
    found = validate(plugin, {"name": "a", "connector.class": plugin.class_name, **given}, BUILT_IN)
    page = (ROOT / "docs/reference/configuration.md").read_text("utf-8")
    for name in given:
        [entry] = [info for info in found.configs if info.name == name]
        assert entry.definition is not None
        assert "No effect: " in entry.definition["documentation"]
        assert any(text.startswith(f"{name} has no effect") for text in found.warnings)
        assert f"- `{name}`: " in page
