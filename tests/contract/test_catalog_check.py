"""``icefloe catalog check``: catalogs that are atomic, one that is not, and no catalog at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.operations.catalog_check import CatalogCheck
from tests.support.command_line import CommandResult, icefloe
from tests.support.fakes.rest_catalog import MemoryCatalogServer
from tests.support.faulty_http import FaultyProxy
from tests.support.stack import RestCatalog

RACES = 12


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryCatalogServer]:
    """A REST catalog whose transactions are atomic."""
    server = MemoryCatalogServer(f"file://{tmp_path}/memory")
    server.start()
    yield server
    server.close()


def _check(tmp_path: Path, catalog: dict[str, str], *more: str) -> CommandResult:
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "t",
        "iceberg.tables": "db.t",
        **{f"iceberg.catalog.{k}": v for k, v in catalog.items()},
    }
    file = tmp_path / "connector.json"
    file.write_text(json.dumps({"name": "c", "config": config}))
    return icefloe("catalog", "check", "-f", str(file), "--direct", "--races", str(RACES), *more)


def _namespaces(catalog: dict[str, str]) -> list[Any]:
    gateway = open_catalog("iceberg", catalog)
    namespaces = gateway._client().list_namespaces()
    gateway.close()
    return [n for n in namespaces if "icefloe_check" in ".".join(n)]


def test_a_catalog_that_commits_table_after_table_is_detected(
    tmp_path: Path, rest_catalog: RestCatalog
) -> None:
    """Iceberg's own server: single commits are atomic, several tables are not."""
    result = _check(tmp_path, rest_catalog.properties)
    assert result.status == 1, result.output
    assert "one table: ATOMIC; several tables: NOT ATOMIC" in result.output
    assert "landed in" in result.output
    assert not _namespaces(rest_catalog.properties)
    assert not list(rest_catalog.warehouse.glob("icefloe_check_*/**/*.avro"))


def test_an_atomic_catalog_passes(tmp_path: Path, memory: MemoryCatalogServer) -> None:
    """Exit status 0, and nothing of the check is left."""
    result = _check(tmp_path, memory.properties)
    assert result.status == 0, result.output
    assert "several tables: ATOMIC in every race" in result.output
    assert not memory.catalog.namespaces
    assert not memory.catalog.tables
    assert not list(tmp_path.rglob("*.avro"))


def test_a_catalog_without_multi_table_commits_is_reported(
    tmp_path: Path, sql_catalog_properties: dict[str, str]
) -> None:
    """SQL catalogs have no multi-table commit; one table is atomic with them."""
    result = _check(tmp_path, sql_catalog_properties)
    assert result.status == 1, result.output
    assert "one table: ATOMIC; several tables: the catalog does not offer it" in result.output


def test_an_existing_namespace_is_kept(tmp_path: Path, memory: MemoryCatalogServer) -> None:
    """Only the scratch tables are created and removed; a missing namespace is not created."""
    missing = _check(tmp_path, memory.properties, "--namespace", "sandbox")
    assert missing.status == 2
    assert "namespace sandbox does not exist" in missing.output
    memory.catalog.namespaces.add("sandbox")
    assert _check(tmp_path, memory.properties, "--namespace", "sandbox").status == 0
    assert memory.catalog.namespaces == {"sandbox"}
    assert not memory.catalog.tables


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, "does not answer"),
        ({"type": "rest"}, "set iceberg.catalog.uri"),
        ({"type": "hadoop"}, "cannot be used"),
    ],
)
def test_without_an_answer_the_status_is_3(
    tmp_path: Path, catalog: dict[str, str], message: str
) -> None:
    """Status 2 for a wrong configuration; both print the reason."""
    result = _check(tmp_path, catalog)
    assert result.status == (3 if "uri" in catalog else 2), result.output
    assert message in result.output


@pytest.mark.parametrize("status", ["403", "500"])
def test_without_any_commit_the_status_is_3(
    tmp_path: Path, memory: MemoryCatalogServer, status: str
) -> None:
    """The last answer is printed, and the tables are removed."""
    proxy = FaultyProxy(memory.properties["uri"])
    proxy.faults.extend([f"refused:{status}"] * 1000)
    result = _check(tmp_path, {**memory.properties, "uri": proxy.uri})
    proxy.close()
    assert result.status == 3, result.output
    assert "no commit succeeded" in result.output
    assert "injected" in result.output
    assert not memory.catalog.tables


@pytest.mark.parametrize("text", ["", "[]", '{"config": 3}', '{"name": "x"}'])
def test_a_file_that_is_no_connector_is_refused(tmp_path: Path, text: str) -> None:
    """Status 2 and a sentence with the reason."""
    file = tmp_path / "x.json"
    file.write_text(text)
    refused = icefloe("catalog", "check", "-f", str(file))
    assert refused.status == 2
    assert "error: " in refused.stderr
    missing = icefloe("catalog", "check", "-f", str(tmp_path / "none.json"))
    assert missing.status == 2


class _UncheckedCatalog(CatalogGateway):
    """Sends commits without their requirements, as a catalog would that does not check them."""

    def commit(self, table: Any, requirements: Any, updates: Any, **options: Any) -> Any:
        """Say yes."""
        del requirements, updates, options
        return table


def test_a_catalog_that_loses_commits_is_detected(
    sql_catalog_properties: dict[str, str],
) -> None:
    """After a success, the snapshot must be in the table."""
    plain = open_catalog("iceberg", sql_catalog_properties)
    gateway = _UncheckedCatalog("iceberg", plain.config)
    check = CatalogCheck(gateway, SystemClock())
    with check.scratch() as scratch:
        result = check.single(scratch, 2)
    assert result.landed == 0
    assert "got a success and is in no table" in result.examples[0]
    gateway.close()
    plain.close()
