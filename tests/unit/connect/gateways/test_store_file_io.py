"""Locations, hosts and credentials of stores, before a client is opened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyiceberg.io import SCHEMA_TO_FILE_IO, load_file_io

from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.storage.guarded_io import GuardedFileIO
from connect.gateways.storage.object_store import check_storage, signs_remotely
from connect.gateways.storage.store_file_io import (
    StoreFileIO,
    _azure_credentials,
    azure_client,
    azure_hosts,
    gcs_client,
)

USERS = {"icefloe.rest.users.file": "users.yaml"}
HOST = "lake.dfs.core.windows.net"
KEY = {"adls.account-key": "a2V5"}


@pytest.fixture(autouse=True)
def _process() -> Iterator[None]:
    yield
    install(AccessPolicy())


def test_one_client_opens_every_location() -> None:
    """PyIceberg would use fsspec for Azure."""
    for scheme in ("s3", "s3a", "gs", "abfs", "abfss", "wasb", "wasbs", "file", "hdfs"):
        assert type(load_file_io({}, f"{scheme}://x/y")) is StoreFileIO, scheme
    assert SCHEMA_TO_FILE_IO.keys() >= {"hf"}


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (f"abfss://c@{HOST}/w/t", ("abfss", HOST, "c/w/t")),
        (f"wasbs://c@{HOST}/w", ("wasbs", HOST, "c/w")),
        ("abfss://c/w/t", ("abfss", "c", "c/w/t")),
        ("s3://b/w/t", ("s3", "b", "b/w/t")),
        ("gs://b/w", ("gs", "b", "b/w")),
        ("file:///w/t", ("file", "", "/w/t")),
        ("hdfs://h:1/w", ("hdfs", "h:1", "/w")),
    ],
)
def test_a_location_becomes_the_path_of_its_client(
    location: str, expected: tuple[str, str, str]
) -> None:
    """For Azure without the host of the account."""
    assert StoreFileIO.parse_location(location) == expected


@pytest.mark.parametrize(
    ("properties", "host", "expected"),
    [
        ({}, HOST, ("lake", "lake.blob.core.windows.net", HOST)),
        (
            {},
            "lake.dfs.core.chinacloudapi.cn",
            ("lake", "lake.blob.core.chinacloudapi.cn", "lake.dfs.core.chinacloudapi.cn"),
        ),
        (
            {"adls.account-name": "other"},
            "",
            ("other", "other.blob.core.windows.net", "other.dfs.core.windows.net"),
        ),
        (
            {"adls.blob-storage-authority": "h:1", "adls.dfs-storage-authority": "h:2"},
            HOST,
            ("lake", "h:1", "h:2"),
        ),
    ],
)
def test_a_location_has_account_and_cloud(
    properties: dict[str, str], host: str, expected: tuple[str, str, str]
) -> None:
    """Both services of the account have an address."""
    assert azure_hosts(properties, host) == expected


@pytest.mark.parametrize(
    ("properties", "host"),
    [
        ({}, ""),
        ({"adls.account-name": "127.0.0.1/x?"}, HOST),
        ({"adls.account-name": "a@evil"}, HOST),
        ({"adls.blob-storage-authority": "good.example.com\\@127.0.0.1"}, HOST),
        ({"adls.dfs-storage-authority": "good.example.com/..@127.0.0.1"}, HOST),
        ({"adls.blob-storage-scheme": "file"}, HOST),
        ({"adls.account-key": "no Base64!"}, HOST),
        ({"adls.client-id": "c", "adls.client-secret": "s"}, HOST),
        ({"adls.client-secret": "s"}, HOST),
        ({"adls.client-id": "c", "adls.client-secret": "s", "adls.tenant-id": "t/../x"}, HOST),
    ],
)
def test_invalid_azure_accounts_are_refused(properties: dict[str, str], host: str) -> None:
    """Addresses with hidden parts, and incomplete credentials."""
    with pytest.raises(ConfigError) as caught:
        azure_client(properties, host)
    assert caught.value.code == "catalog_property"
    assert "Base64!" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"adls.sas-token": "s", **KEY}, {"sas_token": "?s"}),
        ({f"adls.sas-token.{HOST}": "h", "adls.sas-token": "s"}, {"sas_token": "?h"}),
        ({"adls.sas-token.lake": "?a"}, {"sas_token": "?a"}),
        ({"adls.sas-token.other": "a", **KEY}, {"account_key": "a2V5"}),
        ({**KEY, "adls.client-id": "c"}, {"account_key": "a2V5"}),
        (
            {"adls.client-id": "c", "adls.client-secret": "s", "adls.tenant-id": "t"},
            {"tenant_id": "t", "client_id": "c", "client_secret": "s"},
        ),
        ({"adls.client-id": "c"}, {"client_id": "c"}),
        ({}, {}),
    ],
)
def test_the_precedence_of_credentials(
    properties: dict[str, str], expected: dict[str, str]
) -> None:
    """Vended by the catalog, then of the connector, then of the machine."""
    assert _azure_credentials(properties, HOST) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"gcs.service.host": "http://good\\@127.0.0.1"},
        {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "soon"},
    ],
)
def test_invalid_google_stores_are_refused(given: dict[str, str]) -> None:
    """Addresses and times are checked."""
    with pytest.raises(ConfigError):
        gcs_client(given)


@pytest.mark.parametrize(
    ("location", "properties", "is_allowed"),
    [
        ("gs://b/x", {}, False),
        ("gs://b/x", {"gcs.no-auth": "false"}, False),
        ("gs://b/x", {"gcs.no-auth": "true"}, True),
        ("gs://b/x", {"gcs.oauth2.token": "t"}, True),
        (f"abfss://con@{HOST}/x", {}, False),
        (f"abfss://con@{HOST}/x", {"adls.client-id": "managed"}, False),
        (f"abfss://con@{HOST}/x", {"adls.sas-token.other": "s"}, False),
        (f"abfss://con@{HOST}/x", {f"adls.sas-token.{HOST}": "s"}, True),
        (f"abfss://con@{HOST}/x", KEY, True),
    ],
)
def test_credentials_of_the_machine_are_not_used_if_the_api_has_users(
    location: str, properties: dict[str, str], is_allowed: bool
) -> None:
    """Where the API has users, a store is opened with the connector's own credentials only."""
    install(AccessPolicy.of({**USERS, "icefloe.hosts.allowed": "*.windows.net"}))
    if is_allowed:
        check_storage(properties, location)
    else:
        with pytest.raises(ConfigError) as caught:
            check_storage(properties, location)
        assert caught.value.code == "ambient_credentials"


def test_both_hosts_of_an_azure_account_are_checked() -> None:
    """The client also connects to the other one, which may resolve to another address."""
    location = "abfss://con@lake.dfs.example.com/x"
    for allowed in ("lake.dfs.example.com", "lake.blob.example.com"):
        install(AccessPolicy.of({**USERS, "icefloe.hosts.allowed": allowed}))
        with pytest.raises(ConfigError) as caught:
            check_storage(KEY, location)
        assert caught.value.code == "host_refused"
    install(AccessPolicy.of({**USERS, "icefloe.hosts.allowed": "*.example.com"}))
    check_storage(KEY, location)
    with pytest.raises(ConfigError):
        check_storage({**KEY, "adls.account-name": "127.0.0.1/x?"}, location)


def test_the_path_of_a_certificate_bundle_is_checked() -> None:
    """An answer of the catalog may not open files of the machine."""
    install(AccessPolicy.of(USERS))
    with pytest.raises(ConfigError) as caught:
        GuardedFileIO({"s3.ssl.cabundle": "/etc/passwd"})
    assert caught.value.code == "path_refused"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, False),
        ({"s3.remote-signing-enabled": "false"}, False),
        ({"s3.remote-signing-enabled": "true"}, True),
        ({"s3.signer": "S3V4RestSigner"}, True),
        (
            {
                "s3.remote-signing-enabled": "true",
                "s3.access-key-id": "k",
                "s3.secret-access-key": "s",
            },
            False,
        ),
    ],
)
def test_a_catalog_that_vends_keys_may_also_sign(
    properties: dict[str, Any], expected: bool
) -> None:
    """A catalog that also vends keys lets its clients sign."""
    assert signs_remotely(properties) is expected
