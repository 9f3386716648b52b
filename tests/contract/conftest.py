"""Fixtures of the contract tests: one table on each catalog and store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from tests.support.object_stores import Azurite, ObjectStore, S3Proxy, started
from tests.support.stack import RestCatalog, S3Server, unique_name
from tests.support.table_harness import SCHEMA, TableHarness

if TYPE_CHECKING:  # most tests need no Delta library
    from tests.support.upserts import LineageUpserts, Upserts, VectorUpserts

BACKENDS = [
    "sqlite",
    "rest",
    pytest.param("postgres", marks=pytest.mark.matrix),
    pytest.param("s3", marks=pytest.mark.matrix),
]


@pytest.fixture(params=BACKENDS)
def catalog_properties(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Catalog properties of one backend, as they follow ``iceberg.catalog.``."""
    if request.param == "rest":
        catalog: RestCatalog = request.getfixturevalue("rest_catalog")
        return catalog.properties
    sql: dict[str, str] = request.getfixturevalue("sql_catalog_properties")
    if request.param == "postgres":
        return {**sql, "uri": request.getfixturevalue("postgres")}
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        return {**sql, **server.properties, "warehouse": f"{server.warehouse}/{tmp_path.name}"}
    return sql


@pytest.fixture
def catalog(catalog_properties: dict[str, str]) -> Iterator[CatalogGateway]:
    """A gateway to the backend."""
    gateway = open_catalog("iceberg", catalog_properties)
    yield gateway
    gateway.close()


@pytest.fixture
def harness(catalog: CatalogGateway) -> TableHarness:
    """A fresh table."""
    identifier = ("db", unique_name(f"t-{uuid4().hex[:8]}"))
    return TableHarness(catalog, catalog.create(identifier, SCHEMA))


@pytest.fixture(scope="session")
def s3proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """S3 that checks signatures."""
    with started(S3Proxy(tmp_path_factory.mktemp("s3proxy"))) as store:
        yield store


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Azure's blob service."""
    with started(Azurite(tmp_path_factory.mktemp("azurite"))) as store:
        yield store


@pytest.fixture
def copies(sql_catalog_properties: dict[str, str]) -> Iterator[Upserts]:
    """A table with copy-on-write in a local folder."""
    from tests.support.upserts import Upserts, opened

    with opened(Upserts, sql_catalog_properties) as made:
        yield made


@pytest.fixture
def lineage_copies(sql_catalog_properties: dict[str, str]) -> Iterator[LineageUpserts]:
    """The same of format version 3."""
    from tests.support.upserts import LineageUpserts, opened

    with opened(LineageUpserts, sql_catalog_properties) as made:
        yield made


@pytest.fixture
def vectors(sql_catalog_properties: dict[str, str]) -> Iterator[VectorUpserts]:
    """A table with deletion vectors in a local folder."""
    from tests.support.upserts import VectorUpserts, opened

    with opened(VectorUpserts, sql_catalog_properties) as made:
        yield made


@pytest.fixture(
    params=["copies", pytest.param("lineage_copies", marks=pytest.mark.matrix), "vectors"]
)
def changes(request: pytest.FixtureRequest) -> Upserts:
    """A table of each way to remove rows."""
    made: Upserts = request.getfixturevalue(request.param)
    return made
