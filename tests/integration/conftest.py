"""Fixtures of tests of the parts against real brokers and catalogs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.support.coordinator_harness import CoordinatorHarness
from tests.support.stack import Topics

if TYPE_CHECKING:  # most tests need no browser, and no Spark
    from pathlib import Path

    from playwright.sync_api import Browser

    from connect.gateways.catalog.catalog import CatalogGateway
    from tests.support.browsing import BrowserVisit
    from tests.support.java_reader import JavaReader
    from tests.support.readers import Sql
    from tests.support.sql_harness import SqlHarness
    from tests.support.stack import RestCatalog
    from worker.spark.session import Session
    from worker.task.source.source_reader import SourceReader


@pytest.fixture
def admin(kafka_properties: dict[str, str]) -> Iterator[KafkaAdmin]:
    """Questions to the session's broker; makes and deletes topics by exact name."""
    admin = KafkaAdmin(kafka_properties)
    yield admin
    admin.close()


@pytest.fixture
def reader(spark_session: Session, kafka_properties: dict[str, str]) -> SourceReader:
    """Reads under a task name of their own."""
    from tests.support.source_reads import source_reader

    return source_reader(spark_session, kafka_properties)


@pytest.fixture(scope="module")
def catalog(rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    """The Java REST catalog, which Iceberg's, Spark's and DuckDB's readers share."""
    gateway = open_catalog("iceberg", rest_catalog.properties)
    yield gateway
    gateway.close()


@pytest.fixture(scope="module")
def spark(spark_session: Session, rest_catalog: RestCatalog) -> Sql:
    """Runs SQL in Spark; tables are ``rest.db.<name>``."""
    from tests.support.readers import spark_sql

    return spark_sql(spark_session.spark, rest_catalog)


@pytest.fixture(scope="module")
def java(spark_session: Session, rest_catalog: RestCatalog) -> Iterator[JavaReader]:
    """Iceberg's own reader, also for types that Spark does not have."""
    from tests.support.java_reader import JavaReader

    reader = JavaReader(spark_session.spark, rest_catalog.uri)
    yield reader
    reader.close()


@pytest.fixture
def duck() -> Iterator[Sql]:
    """Runs SQL in DuckDB."""
    from tests.support.readers import duckdb_sql

    with duckdb_sql() as sql:
        yield sql


@pytest.fixture
def harness(
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Iterator[CoordinatorHarness]:
    """A connector with a control topic and a table of its own."""
    control = topics.create("control")
    source = topics.create("source")
    harness = CoordinatorHarness(kafka_properties, control, source, sql_catalog_properties)
    yield harness
    harness.task_producer.close()
    harness.reader.close()
    harness.catalog.close()


@pytest.fixture(scope="module")  # its event loop must not outlive the module in this thread
def browser() -> Iterator[Browser]:
    """The machine's browser; a test that asks for it is skipped where there is none."""
    from tests.support.browsing import running_browser

    with running_browser() as running:
        yield running


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., BrowserVisit]]:
    """Visitors of a test: ``visit(url, color_scheme="dark")``."""
    from tests.support.browsing import BrowserVisit

    visits: list[BrowserVisit] = []

    def made(url: str, **more: Any) -> BrowserVisit:
        visits.append(BrowserVisit(browser, **more))
        visits[-1].page.goto(url)
        return visits[-1]

    yield made
    for visit in visits:
        visit.close()


@pytest.fixture
def sql(
    spark_session: Session, tmp_path: Path, sql_catalog_properties: dict[str, str]
) -> Iterator[SqlHarness]:
    """Queries of ``Sql`` over a catalog of their own; other modules have rigs of another kind."""
    from tests.support.sql_harness import SqlHarness

    catalog = open_catalog("iceberg", sql_catalog_properties)
    yield SqlHarness(spark_session, tmp_path, catalog)
    catalog.close()


@pytest.fixture(scope="module")
def shared_sql(
    spark_session: Session, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlHarness]:
    """The same for all tests of a module, whose queries need only records."""
    from tests.support.sql_harness import SqlHarness

    folder = tmp_path_factory.mktemp("sql")
    (folder / "warehouse").mkdir()
    properties = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}"}
    catalog = open_catalog("iceberg", {**properties, "warehouse": f"file://{folder}/warehouse"})
    yield SqlHarness(spark_session, folder, catalog)
    catalog.close()
