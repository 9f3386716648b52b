"""What connectors may reach: hosts in every notation, local paths, credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect.config.invalid_config import InvalidConfigError
from connect.errors import ConfigError, RetriableError, trace_of
from connect.gateways.access_policy import AccessPolicy, hosts_in, install
from connect.gateways.catalog.catalog_errors import request_error
from connect.gateways.catalog.catalog_policy import check_catalog, database_uri
from connect.gateways.catalog_properties import client_config
from connect.gateways.storage.guarded_io import GuardedFileIO
from connect.gateways.storage.object_store import own_credentials
from connect.validation.parse import parse
from connect.validation.plugins import BUILT_IN
from connect.validation.validate import validate

USERS = {"icefloe.rest.users.file": "users.yaml"}
GUARDED = AccessPolicy.of(USERS)
NODE = {"bootstrap.servers": "b:1", **USERS}
CONNECTOR = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog.example.com",
}
SPECIAL = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0",
    "0.0.0.0",
    "169.254.169.254",
    "0xA9FEA9FE",
    "2852039166",
    "0251.0376.0251.0376",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "[::1]",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "2002:7f00:1::",
    "fe80::1%lo",
    "fd00:ec2::254",
    "localhost",
    "LOCALHOST.",
    "x.localhost",
    "metadata.google.internal",
)


@pytest.fixture(autouse=True)
def _process() -> Iterator[None]:
    yield
    install(AccessPolicy())


@pytest.mark.parametrize("host", SPECIAL)
def test_addresses_of_the_machine_are_refused_in_any_notation(host: str) -> None:
    """Loopback, link-local and metadata addresses, before and after name resolution."""
    for resolves in (False, True):
        with pytest.raises(ConfigError) as caught:
            GUARDED.check_host(host, resolves=resolves)
        assert caught.value.code == "host_refused"
    AccessPolicy().check_host(host)
    AccessPolicy.of({**USERS, "icefloe.hosts.allowed": "*"}).check_host(host)


@pytest.mark.parametrize("host", ["10.1.2.3", "192.168.0.1", "8.8.8.8", "2001:db8::1", "fd12::1"])
def test_other_addresses_are_allowed(host: str) -> None:
    """Unless the operator lists allowed hosts."""
    GUARDED.check_host(host)
    GUARDED.check_peer("catalog.example.com", host)
    with pytest.raises(ConfigError, match="not allowed"):
        AccessPolicy.of({"icefloe.hosts.allowed": "other.example.com"}).check_host(host)


def test_an_allowlist_contains_names_domains_and_networks() -> None:
    """Only listed addresses are allowed, also internal ones."""
    listed = "Catalog.Example.com, *.lake.example.com, 127.0.0.0/8, ::1"
    policy = AccessPolicy.of({**USERS, "icefloe.hosts.allowed": listed})
    for host in ("catalog.example.com.", "a.lake.example.com", "127.0.0.1", "2130706433", "[::1]"):
        policy.check_host(host)
    policy.check_host("localhost")
    for host in ("lake.example.com", "evilcatalog.example.com", "169.254.169.254", "10.0.0.1"):
        with pytest.raises(ConfigError):
            policy.check_host(host)
    policy.check_peer("catalog.example.com", "127.0.0.1")
    with pytest.raises(ConfigError):
        policy.check_peer("other.example.com", "10.0.0.1")


def test_the_address_of_the_connection_is_checked() -> None:
    """A name may resolve to another address a moment later."""
    for address in ("127.0.0.1", "::1", "::ffff:169.254.169.254", "fe80::1%eth0"):
        with pytest.raises(ConfigError):
            GUARDED.check_peer("rebinding.example.com", address)


@pytest.mark.parametrize(
    ("value", "hosts"),
    [
        ("http://a:1/x?y#z", ["a"]),
        ("http://user:p@127.0.0.1:80", ["127.0.0.1"]),
        ("http://good\\@127.0.0.1", ["127.0.0.1"]),
        ("thrift://a:1,thrift://b:2", ["a", "b"]),
        ("[::1]:9000", ["::1"]),
        ("127.0.0.1:9000/x", ["127.0.0.1"]),
        ("BlobEndpoint=http://a/;QueueEndpoint=https://b/", ["a", "b"]),
        ("s3://bucket/x", []),
        ("", []),
    ],
)
def test_the_hosts_of_an_address_are_found(value: str, hosts: list[str]) -> None:
    """Without logins, ports and paths; every address of a list counts."""
    assert list(hosts_in(value)) == hosts


BAD = {
    "iceberg.catalog.uri": (
        "http://169.254.169.254/latest",
        "http://0xA9FEA9FE",
        "http://[::ffff:127.0.0.1]:8083",
        "http://user@127.1",
    ),
    "iceberg.catalog.oauth2-server-uri": ("http://127.0.0.1/token",),
    "iceberg.catalog.s3.endpoint": (
        "http://127.0.0.1:9000",
        "169.254.169.254",
        "https://store.example.com",
        "https://bucket.s3-website-us-east-1.amazonaws.com",
        "https://s3.us-east-1.amazonaws.com.example.com",
        "http://127.0.0.1\\@s3.amazonaws.com",
        "http://s3.amazonaws.com;@127.0.0.1",
        "http://s3.amazonaws.com@127.0.0.1",
    ),
    "iceberg.catalog.glue.endpoint": ("http://127.0.0.1\\@good",),
    "iceberg.catalog.s3.proxy-uri": ("http://127.0.0.1",),
    "iceberg.catalog.ssl.cabundle": ("/etc/passwd",),
    "iceberg.table.shop.orders.location": ("hdfs://127.0.0.1/x", "abfss://c@127.1/x"),
    "iceberg.tables.write-props.write.data.path": ("hdfs://localhost/x",),
    "value.converter.schema.registry.url": ("http://2130706433", "http://ok,http://127.0.0.1"),
    "value.converter.bearer.auth.issuer.endpoint.url": ("http://localhost/token",),
    "value.converter.proxy.host": ("127.0.0.1",),
    "value.converter.schema.registry.ssl.keystore.location": ("/etc/icefloe/node.pem",),
}


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://s3.amazonaws.com",
        "https://s3.eu-central-1.amazonaws.com",
        "s3-fips.dualstack.us-gov-west-1.amazonaws.com",
        "https://s3.cn-north-1.amazonaws.com.cn",
        "https://storage.googleapis.com",
    ],
)
def test_the_clouds_own_stores_need_no_allowlist(endpoint: str) -> None:
    """And any other one is allowed if the operator names it."""
    properties = {"s3.endpoint": endpoint}
    GUARDED.check_addresses(properties, resolves=False)
    named = AccessPolicy.of({**USERS, "icefloe.hosts.allowed": "store.example.com"})
    named.check_addresses({"s3.endpoint": "https://store.example.com:9000/"})
    AccessPolicy().check_addresses({"s3.endpoint": "https://any.example.com"})


@pytest.mark.parametrize("key", ["s3.region", "client.region"])
def test_a_region_cannot_be_another_host(key: str) -> None:
    """Clients write it into the host name; where they may, they add the node's credentials."""
    for node in ({}, USERS, {**USERS, "icefloe.ambient.credentials.allowed": "true"}):
        install(AccessPolicy.of(node))
        with pytest.raises(ConfigError) as refused:
            own_credentials({key: "evil.example.com/x?"})
        assert refused.value.code == "catalog_property"
        assert own_credentials({key: "eu-central-1"})[key] == "eu-central-1"


def test_a_list_of_addresses_may_have_spaces() -> None:
    """Between addresses, not within one."""
    key = "schema.registry.url"
    GUARDED.check_addresses({key: "http://192.0.2.1:8081 , http://192.0.2.2:8081"})
    with pytest.raises(ConfigError):
        GUARDED.check_addresses({key: "http://192.0.2.1 @169.254.169.254"}, resolves=False)


@pytest.mark.parametrize(("key", "value"), [(k, v) for k, vs in BAD.items() for v in vs])
def test_a_refused_address_is_an_error_of_its_key(key: str, value: str) -> None:
    """Only if the API has users."""
    raw = {**CONNECTOR, key: value}
    with pytest.raises(InvalidConfigError) as caught:
        parse(raw, node=NODE)
    assert list(caught.value.errors) == [key]
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    found = validate(sink, raw, BUILT_IN, access=GUARDED)
    assert [i.name for i in found.configs if i.errors] == [key]
    parse(raw, node={"bootstrap.servers": "b:1"})
    assert not validate(sink, raw, BUILT_IN, access=AccessPolicy()).errors


@pytest.mark.parametrize("end", ["?", "#", "/x?y=", "/#x", "/a b", "\\@evil"])
def test_the_address_of_a_catalog_may_have_no_query(end: str) -> None:
    """It could hide the path that the client appends."""
    with pytest.raises(InvalidConfigError) as caught:
        parse({**CONNECTOR, "iceberg.catalog.uri": "https://catalog.example.com" + end}, node=NODE)
    assert list(caught.value.errors) == ["iceberg.catalog.uri"]


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:////etc/passwd",
        "sqlite:///{root}/../catalog.db",
        "sqlite:///{root}/link/catalog.db",
        "sqlite:///file:/etc/passwd?uri=true",
        "sqlite:///file:{root}/x.db?mode=ro&uri=true",
        "sqlite:///{root}/x.db?vfs=unix-none",
        "jdbc:sqlite:/etc/passwd",
        "postgresql://u:p@db.example.com/db?sslcert=/etc/x",
        "postgresql://u:p@db.example.com/db?sslkey=/etc/x",
        "postgresql://u:p@db.example.com/db?passfile=/etc/x",
        "postgresql://u:p@db.example.com/db?service=x",
        "postgresql://u:p@db.example.com/db?servicefile=/etc/x",
        "postgresql://u:p@db.example.com/db?sslrootcert=/etc/x",
        "postgresql://u:p@db.example.com/db?host=127.0.0.1",
        "postgresql://u:p@db.example.com/db?hostaddr=127.0.0.1",
        "postgresql://u:p@127.0.0.1/db",
        "postgresql://u:p@db.example.com,127.0.0.1/db",
        "postgresql:///db?host=/var/run/postgresql",
        "postgresql://u:p@db.example.com/db?plugin=x",
    ],
)
def test_databases_of_sql_catalogs_are_checked(uri: str, tmp_path: Path) -> None:
    """SQLite files are below an allowed folder; libpq opens no file and no other host."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to("/etc")
    node = {**NODE, "icefloe.local.paths.allowed": str(root)}
    given = uri.replace("{root}", str(root))
    raw = {**CONNECTOR, "iceberg.catalog.type": "sql", "iceberg.catalog.uri": given}
    raw["iceberg.catalog.warehouse"] = f"file://{root}/warehouse"
    with pytest.raises(InvalidConfigError) as caught:
        parse(raw, node=node)
    assert list(caught.value.errors) == ["iceberg.catalog.uri"]
    for good in (
        f"sqlite:///{root}/catalog.db",
        "postgresql://u:p@db.example.com/d?sslmode=require",
    ):
        parse({**raw, "iceberg.catalog.uri": good}, node=node)


def test_libpq_uses_no_credentials_of_the_node() -> None:
    """No password file, certificate or password of the environment."""
    given = {"type": "sql", "uri": "postgresql://u@db.example.com/d", "warehouse": "s3://b/w"}
    config = client_config(given)
    uri = database_uri(config, GUARDED)
    for name in ("passfile", "sslcert", "sslkey"):
        assert f"{name}=%2Fdev%2Fnull%2Fnone" in uri or f"{name}=/dev/null/none" in uri
    assert "password=" in uri
    assert database_uri(config, AccessPolicy()) == config.properties["uri"]


def test_credentials_of_the_machine_are_opt_in() -> None:
    """Without keys an S3 client sends anonymous requests; profiles and roles are refused."""
    own = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    assert own_credentials({}) == {}
    install(GUARDED)
    assert own_credentials({"s3.session-token": "t"}) == {"s3.anonymous": "true"}
    assert own_credentials(own) == own
    for bad in (
        {"client.profile-name": "default"},
        {"s3.role-arn": "arn:x"},
        {"s3.region": "x/../@evil", **own},
        {"s3.endpoint": "http://127.0.0.1", **own},
    ):
        with pytest.raises(ConfigError):
            own_credentials(bad)
    for bad in (
        {"type": "glue", "warehouse": "s3://b/w"},
        {"type": "glue", "warehouse": "s3://b/w", "dynamodb.access-key-id": "a"},
        {
            "type": "glue",
            "warehouse": "s3://b/w",
            "dynamodb.access-key-id": "a",
            "dynamodb.secret-access-key": "b",
        },
        {
            "type": "glue",
            "warehouse": "s3://b/w",
            "client.access-key-id": "a",
            "client.secret-access-key": "b",
            "glue.profile-name": "default",
        },
        {"type": "dynamodb", "warehouse": "s3://b/w", "client.access-key-id": "a"},
        {"type": "rest", "uri": "https://c.example.com", "rest.sigv4-enabled": "true"},
        {"type": "rest", "uri": "https://c.example.com", "rest.auth.type": "sigv4"},
        {"type": "rest", "uri": "https://c.example.com", "rest.auth.type": "google"},
    ):
        with pytest.raises(ConfigError) as caught:
            check_catalog(client_config(bad), GUARDED, resolves=False)
        assert caught.value.code == "ambient_credentials"
    allowed = AccessPolicy.of({**USERS, "icefloe.ambient.credentials.allowed": "true"})
    check_catalog(client_config({"type": "glue", "warehouse": "s3://b/w"}), allowed, resolves=False)


def test_every_file_of_a_table_is_checked(tmp_path: Path) -> None:
    """Metadata may name any file: only those below an allowed folder are opened."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret")
    install(AccessPolicy.of({**USERS, "icefloe.local.paths.allowed": str(root)}))
    io = GuardedFileIO({})
    with io.new_output(f"file://{root}/x").create() as stream:
        stream.write(b"data")
    assert len(io.new_input(str(root / "x"))) == 4
    outside = (
        f"{tmp_path}/secret",
        f"file://{tmp_path}/secret",
        f"file:{tmp_path}/secret",
        f"file://{root}/../secret",
        f"FILE://{root}/link",
        os.path.relpath(tmp_path / "secret"),
    )
    for place in outside:
        for use in (io.new_input, io.new_output, io.delete):
            with pytest.raises(ConfigError) as caught:
                use(place)
            assert caught.value.code == "path_refused"
    for place in ("gs://bucket/x", "abfss://c@account.dfs.core.windows.net/x", "hdfs://10.0.0.1/x"):
        with pytest.raises(ConfigError):
            io.new_input(place)
    assert (tmp_path / "secret").read_text() == "secret"


def test_texts_of_other_systems_are_not_shown() -> None:
    """Messages and traces have class and status of an error, not its text."""
    body = "canary-of-a-body"

    def failed() -> RetriableError:
        error = request_error(OSError(body))
        error.__cause__ = OSError(body)
        assert isinstance(error, RetriableError)
        return error

    assert body in trace_of(failed())
    install(GUARDED)
    displayed = trace_of(failed())
    assert body not in displayed
    assert "OSError" in displayed
    assert "storage_unavailable" in displayed
    assert body not in trace_of(OSError(body))
