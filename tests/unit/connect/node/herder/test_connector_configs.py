"""Connectors that write to the tables of another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connect.node.herder.connector_configs import ConnectorConfigs
from connect.validation.providers import Providers

CATALOG = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://catalog:8181"}
BASE = {"connector.class": "IcebergSink", "topics": "t", **CATALOG}
DYNAMIC = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "table"}
OTHERS: dict[str, tuple[dict[str, str], bool]] = {
    "same table": ({"iceberg.tables": "db.b,db.a"}, True),
    "same table by namespace": (
        {"iceberg.tables": "a", "iceberg.tables.default-namespace": "db"},
        True,
    ),
    "dead letters": ({"iceberg.tables": "db.x", "errors.deadletterqueue.table": "db.a"}, True),
    "any table": (DYNAMIC, True),
    "the address by a placeholder": (
        {"iceberg.tables": "db.a", "iceberg.catalog.uri": "${env:CATALOG}/"},
        True,
    ),
    "other table": ({"iceberg.tables": "db.b"}, False),
    "other catalog": ({"iceberg.tables": "db.a", "iceberg.catalog.uri": "http://other"}, False),
    "invalid": ({"iceberg.tables": "db.a", "iceberg.nonsense.x": "", "tasks.max": "x"}, False),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_connectors_of_a_table_are_found(kind: str) -> None:
    """By the tables that a connector may write, in the same catalog."""
    change, is_found = OTHERS[kind]
    stored = {"own": {**BASE, "iceberg.tables": "db.a"}, "other": {**BASE, **change}}
    store: Any = SimpleNamespace(
        names=lambda: list(stored),
        get=lambda name: SimpleNamespace(name=name, config={**stored[name], "name": name}),
    )
    node: Any = SimpleNamespace(group_id="g", properties={})
    properties = {
        "config.providers": "env",
        "config.providers.env.class": "EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": ".*",
    }
    providers = Providers(properties, {"CATALOG": "http://catalog:8181"})
    configs = ConnectorConfigs(node, providers, store)
    own = configs.parsed(store.get("own"))
    assert [c.name for c in configs.sharing_tables(own)] == (["other"] if is_found else [])
