"""The Java sink's catalog keys as PyIceberg understands them."""

from __future__ import annotations

import pytest

from connect.errors import ConfigError
from connect.gateways.catalog_properties import client_config

REST = {"type": "rest", "uri": "http://c/"}
STATEMENT = "options=-c%20statement_timeout%3D60000"
SQL = {"type": "sql", "uri": "sqlite:////data/c.db", "warehouse": "file:///data/wh"}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (REST, "rest"),
        ({"uri": "https://c"}, "rest"),
        ({"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": "http://c"}, "rest"),
        (SQL, "sql"),
        ({**SQL, "type": "jdbc"}, "sql"),
        ({"type": "hive", "uri": "thrift://h:9083"}, "hive"),
        ({"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}, "glue"),
        ({"type": "dynamodb"}, "dynamodb"),
    ],
)
def test_a_catalog_is_chosen_by_type_class_or_uri(given: dict[str, str], kind: str) -> None:
    """By a URI only if it must be REST."""
    assert client_config(given).kind == kind


@pytest.mark.parametrize(
    "given",
    [
        {"type": "hadoop", "warehouse": "/w"},
        {"catalog-impl": "org.apache.iceberg.nessie.NessieCatalog"},
        {"catalog-impl": "com.example.OwnCatalog"},
        {"type": "in-memory"},
        {},
        {"type": "rest"},
        {"type": "sql", "uri": "sqlite:///x"},
        {"type": "sql", "uri": "mysql://h/d", "warehouse": "/w"},
        {**REST, "rest.auth.type": "kerberos"},
        {**REST, "rest.auth.type": "basic"},
        {**REST, "rest.client.socket-timeout-ms": "soon"},
        {**REST, "py-io-impl": "os.path"},
        {**REST, "py-catalog-impl": "os.path"},
        {**REST, "auth": "x"},
        {**REST, "s3.retry-strategy-impl": "os.path"},
        {**REST, "adls.connection-string": "AccountName=a"},
        {**REST, "adls.token": "t"},
    ],
)
def test_invalid_catalog_properties_are_configuration_errors(given: dict[str, str]) -> None:
    """Unknown, unsafe, incomplete or with class names: before any connection."""
    with pytest.raises(ConfigError):
        client_config(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("jdbc:sqlite:/data/c.db", "sqlite:////data/c.db?timeout=10"),
        ("jdbc:sqlite:c.db", "sqlite:///c.db?timeout=10"),
        ("sqlite:////data/c.db?timeout=3", "sqlite:////data/c.db?timeout=3"),
        (
            "jdbc:postgresql://h:5432/d",
            f"postgresql+psycopg2://u%40x:p%2Fw@h:5432/d?connect_timeout=10&{STATEMENT}",
        ),
        (
            "postgresql://a:b@h/d?connect_timeout=1",
            f"postgresql+psycopg2://a:b@h/d?connect_timeout=1&{STATEMENT}",
        ),
    ],
)
def test_jdbc_and_sqlalchemy_uris_are_equivalent(given: str, expected: str) -> None:
    """Time limits are added if missing."""
    more = {"jdbc.user": "u@x", "jdbc.password": "p/w"}
    assert client_config({**SQL, **more, "uri": given}).properties["uri"] == expected


def test_storage_keys_are_translated() -> None:
    """Path style, regions, timeouts and roles have other names in PyIceberg."""
    translated = client_config(
        {
            **REST,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": "http://s3",
            "s3.path-style-access": "true",
            "client.region": "eu-west-1",
            "http-client.apache.socket-timeout-ms": "2500",
            "client.assume-role.arn": "arn:role",
            "header.X-Tenant": "t",
            "another.client": "key",
        }
    ).properties
    assert "io-impl" not in translated
    assert translated["s3.endpoint"] == "http://s3"
    assert translated["s3.force-virtual-addressing"] == "false"
    assert translated["client.region"] == translated["s3.region"] == "eu-west-1"
    assert (translated["s3.request-timeout"], translated["s3.connect-timeout"]) == ("2.5", "10.0")
    assert translated["client.role-arn"] == "arn:role"
    assert (translated["header.X-Tenant"], translated["another.client"]) == ("t", "key")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"s3.endpoint": "https://store.example.com:9000", "ssl.cabundle": "/ca"}, "/ca"),
        ({"s3.endpoint": "https://s3.eu-west-1.amazonaws.com", "ssl.cabundle": "/ca"}, None),
        ({"ssl.cabundle": "/ca"}, None),
        ({"s3.ssl.cabundle": "/own"}, "/own"),
        ({"s3.endpoint": "https://s", "ssl.cabundle": "/ca", "s3.ssl.cabundle": "/own"}, "/own"),
    ],
)
def test_a_store_uses_the_certificates_of_the_catalog_by_default(
    given: dict[str, str], expected: str | None
) -> None:
    """A store of one's own has the catalog's trusted certificates unless it is given others."""
    assert client_config({**REST, **given}).properties.get("s3.ssl.cabundle") == expected


def test_rest_authentication() -> None:
    """OAuth has Java's default server; basic and none have PyIceberg's nested form."""
    oauth = client_config({**REST, "credential": "id:secret"}).properties
    assert oauth["oauth2-server-uri"] == "http://c/v1/oauth/tokens"
    basic = {"rest.auth.basic.username": "u", "rest.auth.basic.password": "p"}
    properties = client_config({**REST, "rest.auth.type": "basic", **basic}).properties
    assert properties["auth"] == {"type": "basic", "basic": {"username": "u", "password": "p"}}
    assert client_config({**REST, "rest.auth.type": "none"}).properties["auth"] == {"type": "noop"}
    signed = client_config({**REST, "rest.auth.type": "sigv4"}).properties
    assert (signed["rest.sigv4-enabled"], signed["rest.sigv4.max-retries"]) == ("true", "0")


def test_time_limits_have_defaults_and_java_keys() -> None:
    """Defaults, and Java's keys for them."""
    default = client_config(REST)
    assert (default.connect_timeout_ms, default.read_timeout_ms) == (10_000, 60_000)
    keys = ("rest.client.connection-timeout-ms", "rest.client.socket-timeout-ms")
    given = client_config({**REST, keys[0]: "5", keys[1]: "7"})
    assert (given.connect_timeout_ms, given.read_timeout_ms) == (5, 7)


def test_a_local_warehouse_gets_a_scheme() -> None:
    """So every reader can open the locations of tables in a folder."""
    for given in ("/data/wh", "file:/data/wh", "file:///data/wh/"):
        warehouse = client_config({**SQL, "warehouse": given}).properties["warehouse"]
        assert warehouse == "file:///data/wh"
