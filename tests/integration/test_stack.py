"""The real parts that other tests lean on do what they say."""

from __future__ import annotations

import httpx
import psycopg2
import pytest

from connect.embedded.broker import Broker
from tests.support.stack import RestCatalog, S3Server, Topics


@pytest.mark.kafka
def test_topics_are_created_on_the_broker(topics: Topics, broker: Broker) -> None:
    """Two topics of one prefix have two names and both exist."""
    from confluent_kafka.admin import AdminClient

    first, second = topics.create("a", partitions=2), topics.create("a", cleanup_policy="compact")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    found = admin.list_topics(timeout=60).topics
    assert first != second
    assert len(found[first].partitions) == 2
    assert second in found


@pytest.mark.java
def test_the_rest_catalog_creates_a_namespace(rest_catalog: RestCatalog) -> None:
    """PyIceberg can use the Java REST catalog."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("java", **rest_catalog.properties)
    catalog.create_namespace("created")
    assert ("created",) in catalog.list_namespaces()


@pytest.mark.matrix  # contract tests commit to it
def test_the_s3_server_stores_an_object(s3_server: S3Server) -> None:
    """PyIceberg's file IO reads what it wrote."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    io = PyArrowFileIO(s3_server.properties)
    with io.new_output(f"{s3_server.warehouse}/x").create() as stream:
        stream.write(b"content")
    with io.new_input(f"{s3_server.warehouse}/x").open() as stream:
        assert stream.read() == b"content"
    assert httpx.get(f"{s3_server.endpoint}/warehouse/warehouse/x").content == b"content"


def test_postgres_answers(postgres: str) -> None:
    """The URI is that of a running server."""
    with psycopg2.connect(postgres.replace("+psycopg2", "")) as connection:
        cursor = connection.cursor()
        cursor.execute("select 1")
        assert cursor.fetchone() == (1,)
    connection.close()
