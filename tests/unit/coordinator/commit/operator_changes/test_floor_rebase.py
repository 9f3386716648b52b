"""Rebasing tables: of the connector's own, and of no other."""

from __future__ import annotations

from typing import Any

import pytest

from connect.errors import RetriableError
from connect.validation.parse import parse
from coordinator.operator_requests import restore_floors

CONFIG = {
    "name": "alice-orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "alice.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}


class AskedError(RetriableError):
    """The catalog was asked for a table."""

    default_code = "asked"


class RecordingCatalog:
    """A catalog that only notes that it is asked."""

    def load(self, name: list[str]) -> Any:
        """Refuses."""
        raise AskedError(".".join(name))


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({}, ["asked", "not_granted"]),
        ({"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "t"}, None),
    ],
)
def test_only_tables_of_the_connector_are_read(
    more: dict[str, str], codes: list[str] | None, is_applied: bool
) -> None:
    """Other tables are refused before the catalog is asked; grants apply to open connectors."""
    node = {"icefloe.grants.default": r"alice\..*"}
    raw = {**CONFIG, **more}
    if more:
        del raw["iceberg.tables"]
    config = parse(raw, node=node)
    results = restore_floors(
        RecordingCatalog(),  # type: ignore[arg-type] # it has what is asked of it
        config,
        ["alice.orders", "bob.orders"],
        {0: 1},
        is_applied=is_applied,
    )
    assert [one["code"] for one in results] == (codes or ["asked", "not_granted"])
    assert not any(one["mended"] for one in results)
