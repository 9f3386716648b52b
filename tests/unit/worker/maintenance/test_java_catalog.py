"""A connector's catalog properties, as Iceberg's Java client takes them."""

from __future__ import annotations

import pytest

from connect.errors import ConfigError
from worker.maintenance.java_catalog import JavaCatalog, store_jars

RESOLVING = "org.apache.iceberg.io.ResolvingFileIO"


def test_properties_of_a_rest_catalog_are_passed_on() -> None:
    """In Java's names; vended credentials are requested, as by the coordinator."""
    given = {
        "type": "rest",
        "uri": "https://catalog/api",
        "warehouse": "w",
        "credential": "id:secret",
        "s3.region": "eu-1",
        "cache-enabled": "true",
    }
    catalog = JavaCatalog.of("ice", given)
    assert catalog.implementation == "org.apache.iceberg.rest.RESTCatalog"
    assert catalog.jar_groups == ()
    assert catalog.properties == {
        "uri": "https://catalog/api",
        "warehouse": "w",
        "credential": "id:secret",
        "client.region": "eu-1",
        "io-impl": RESOLVING,
        "rest-metrics-reporting-enabled": "false",
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("sqlite:////data/catalog.db", {"uri": "jdbc:sqlite:/data/catalog.db", "clients": "1"}),
        ("jdbc:sqlite:/data/catalog.db", {"uri": "jdbc:sqlite:/data/catalog.db", "clients": "1"}),
        ("jdbc:postgresql://db:5432/ice?a=b", {"uri": "jdbc:postgresql://db:5432/ice?a=b"}),
        (
            "postgresql+psycopg2://us%40er:p%2Fw@db/ice?connect_timeout=3&sslmode=require",
            {
                "uri": "jdbc:postgresql://db/ice?sslmode=require",
                "jdbc.user": "us@er",
                "jdbc.password": "p/w",
            },
        ),
    ],
)
def test_urls_of_a_database_become_jdbc_urls(uri: str, expected: dict[str, str]) -> None:
    """Tables of the catalog are not created."""
    catalog = JavaCatalog.of("ice", {"type": "sql", "uri": uri, "warehouse": "file:///w"})
    own = {"io-impl": RESOLVING, "warehouse": "file:///w", "jdbc.init-catalog-tables": "false"}
    assert catalog.properties == {**own, **expected}
    assert catalog.jar_groups == ("jdbc",)


@pytest.mark.parametrize("kind", ["hive", "dynamodb", "bigquery"])
def test_other_catalogs_are_refused(kind: str) -> None:
    """It is not known whether both clients commit under one condition."""
    with pytest.raises(ConfigError) as refused:
        JavaCatalog.of("ice", {"type": kind})
    assert refused.value.code == "maintenance_unsupported"


@pytest.mark.parametrize("prefix", ["glue.", "client."])
def test_a_glue_catalog(prefix: str) -> None:
    """Its login is in no property of the Java client: it becomes system properties."""
    given = {
        "type": "glue",
        "glue.region": "eu-1",
        f"{prefix}access-key-id": "id",
        f"{prefix}secret-access-key": "secret",
        "warehouse": "s3://w",
    }
    catalog = JavaCatalog.of("ice", given)
    assert catalog.implementation == "org.apache.iceberg.aws.glue.GlueCatalog"
    assert catalog.jar_groups == ("iceberg-aws",)
    assert catalog.properties["client.region"] == "eu-1"
    login = {"aws.accessKeyId": "id", "aws.secretAccessKey": "secret"}
    assert catalog.system_properties == login
    assert JavaCatalog.of("ice", {"type": "glue"}).system_properties == {}


def test_jars_follow_the_store() -> None:
    """A store that no test covers is refused."""
    assert store_jars("file:///w/t") == store_jars("/w/t") == ()
    assert store_jars("s3://bucket/t") == store_jars("s3a://bucket/t") == ("iceberg-aws",)
    assert store_jars("gs://bucket/t") == ("iceberg-gcp",)
    with pytest.raises(ConfigError) as refused:
        store_jars("abfss://container@account.dfs.core.windows.net/t")
    assert refused.value.code == "maintenance_unsupported"
