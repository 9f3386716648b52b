"""Fixtures of the whole suite: the real parts, started once per session when a test asks."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import HealthCheck, settings

from connect import logs
from connect.embedded.broker import Broker
from connect.jvm import jars
from connect.redaction.secret_values import KNOWN
from tests.support.stack import RestCatalog, S3Server, Topics, postgres_server

# the time of an example depends on the machine, not on the code; each run has other examples
settings.register_profile(
    "icefloe", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("icefloe")

if TYPE_CHECKING:  # importing it takes pyspark, which most tests do not need
    from worker.spark.session import Session


def pytest_configure() -> None:
    """Collect no garbage while test files are imported: nearly all objects stay.

    Log exceptions without the values of variables: structlog's own form takes seconds for each.
    """
    gc.disable()
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], console])


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection, and collect other objects rarely.

    Collecting them took a tenth of the processor time of the unit tests.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _logging_restored() -> Iterator[None]:
    """Undo what the tests of a module configure: a node in this process sets up its logging."""
    lines, configured = logs._lines, structlog.get_config()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    logs._lines = lines
    structlog.configure(**configured)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One Kafka broker for the session; tests that kill or pause a broker start their own."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for one test, which may stop and start it."""
    with Broker(tmp_path_factory.mktemp("own-broker")) as started:
        yield started


@pytest.fixture(scope="session")
def kafka_properties(broker: Broker) -> dict[str, str]:
    """Client properties of the session broker, in the names of Kafka's Java clients."""
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture(scope="session")
def topics(broker: Broker) -> Topics:
    """Creates topics with unique names: ``topics.create("orders", partitions=4)``."""
    return Topics(broker)


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """Iceberg's Java REST catalog; tests that kill or pause one start their own."""
    catalog = RestCatalog(tmp_path_factory.mktemp("rest-catalog"))
    catalog.start()
    yield catalog
    catalog.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 API with the bucket ``warehouse``; ``.properties`` are Iceberg's ``s3.*``."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """SQLAlchemy URI of a PostgreSQL server of this session."""
    with postgres_server() as uri:
        yield uri


@pytest.fixture
def sql_catalog_properties(tmp_path: Path) -> dict[str, str]:
    """Properties of a new SQL catalog on SQLite, as they follow ``iceberg.catalog.``."""
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    return {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": f"file://{warehouse}",
    }


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The worker's Spark session; starting one takes 6 s, so all tests share it.

    It also has Iceberg's runtime and Delta, for tests that read tables with them.
    """
    from worker.spark.session import open_session

    groups = ("spark-kafka", "iceberg-spark", "delta-spark")
    libraries = [jar for group in groups for jar in jars.resolve(group)]
    properties = {
        "spark.driver.memory": "1g",
        "spark.jars": ",".join(map(str, libraries)),
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions,"
            "io.delta.sql.DeltaSparkSessionExtension"
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta distributes the state of a table: by default over 50 tasks for each read and write
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    session = open_session(properties, folder=tmp_path_factory.mktemp("spark"))
    yield session
    session.close()


@pytest.fixture(autouse=True)
def _no_known_secrets() -> Iterator[None]:
    """Forget secrets after each test, so that the next test does not mask them."""
    yield
    KNOWN._displayed.clear()
    KNOWN._ordered = []
