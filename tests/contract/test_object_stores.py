"""Object stores of every kind, opened with Iceberg's keys: files, refusals, certificates."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.errors import ConfigError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog_properties import client_config
from connect.gateways.storage.guarded_io import GuardedFileIO, table_storage
from connect.gateways.storage.object_store import probe
from coordinator.kernel.effects import TableCommitted
from tests.differential.support import config, plan, run_batches, source
from tests.support.object_stores import (
    AZURITE_ACCOUNT,
    Azurite,
    FakeGcs,
    ObjectStore,
    S3Proxy,
    started,
)
from tests.support.stack import unique_name
from tests.support.table_harness import TableHarness, paths_of
from worker.batch.descriptors import BatchResult

ROWS = Schema(NestedField(1, "id", LongType(), required=False))
SQL = {"type": "sql", "uri": "sqlite:///:memory:"}
OTHER_KEY = base64.b64encode(b"another key of the same length.!" * 2).decode()
REQUESTS_MAX = 10
Refusal = TypeVar("Refusal", bound=Exception)
CUT_RESPONSE = "Connection closed before getting full response"


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Google's store."""
    with started(FakeGcs(tmp_path_factory.mktemp("gcs"))) as store:
        yield store


@pytest.fixture(params=["s3proxy", "azurite", "gcs"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    """Each kind of store."""
    store: ObjectStore = request.getfixturevalue(request.param)
    return store


def test_a_table_is_written_and_read_back(store: ObjectStore, tmp_path: Path) -> None:
    """Data files by the pipeline of the worker, metadata by the committer."""
    gateway = _catalog(store, tmp_path)
    table = gateway.create(("db", unique_name("t").replace("-", "_")), ROWS)
    harness = TableHarness(gateway, table)
    assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 1
    storage = table_storage(table, {})
    written = _write(table.location(), storage, tmp_path)
    [file] = written.files["db.t1"]
    assert file.file_path.startswith(table.location())
    assert len(table.io.new_input(file.file_path)) == file.file_size_in_bytes
    with table.io.new_input(file.file_path).open() as stream:
        assert stream.read()[:4] == b"PAR1"
    table.io.delete(file.file_path)
    _refused(lambda: table.io.delete(file.file_path), FileNotFoundError)
    gateway.close()


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("s3proxy", {"s3.secret-access-key": "wrong"}, "refuses the credentials"),
        ("s3proxy", {"s3.access-key-id": "wrong"}, "refuses the credentials"),
        ("azurite", {"adls.auth.shared-key.account.key": OTHER_KEY}, "refuses the credentials"),
        (
            "azurite",
            {"warehouse": "abfss://nothing@devstoreaccount1.dfs.core.windows.net/w"},
            "not exist",
        ),
        ("s3proxy", {"warehouse": "s3://nothing/w"}, "does not exist"),
        ("gcs", {"warehouse": "gs://nothing/w"}, "does not exist"),
    ],
)
def test_a_refusal_names_the_store(
    request: pytest.FixtureRequest, name: str, change: dict[str, str], says: str, tmp_path: Path
) -> None:
    """For a probe, a file of the catalog and a file of the worker."""
    store: ObjectStore = request.getfixturevalue(name)
    warehouse = change.get("warehouse", store.warehouse)
    properties = _opened({**store.properties, **change})
    refused = _refusal(lambda: probe(GuardedFileIO(properties), f"{warehouse}/probe"), says)
    assert refused.code == "storage_unavailable"
    refused = _refusal(lambda: _catalog(store, tmp_path, **change).create(("db", "t"), ROWS), says)
    assert refused.code == "storage_unavailable"
    refused = _refusal(lambda: _write(f"{warehouse}/t", properties, tmp_path), says)
    assert refused.code == "table_not_writable"
    assert refused.coordinates["table"] == "db.t1"


def _refusal(request: Callable[[], object], says: str) -> RetriableError:
    """Return the error of a request that the store refuses."""
    refused = _refused(request, RetriableError)
    assert says in str(refused)
    return refused


def _refused(request: Callable[[], object], kind: type[Refusal]) -> Refusal:
    """Return the error of a refused request.

    Azurite sometimes ends a connection in the middle of a refusal, because it has not read the
    body of the request. The client then raises another error, and the request is sent again.
    """
    for _ in range(REQUESTS_MAX):
        with pytest.raises((kind, OSError)) as refused:
            request()
        if CUT_RESPONSE not in str(refused.value):
            break
    assert isinstance(refused.value, kind)
    return refused.value


def test_a_private_certificate_authority_can_be_configured(tmp_path: Path) -> None:
    """``ssl.cabundle`` and ``s3.ssl.cabundle``; without them the error names the certificate."""
    with started(S3Proxy(tmp_path, has_tls=True)) as store:
        assert isinstance(store, S3Proxy)
        own, path = str(store.ca_file), f"{store.warehouse}/probe"
        for key in ("ssl.cabundle", "s3.ssl.cabundle"):
            properties = _opened({**store.properties, key: own})
            probe(GuardedFileIO(properties), path)
            [file] = _write(f"{store.warehouse}/t", properties, tmp_path).files["db.t1"]
            assert len(GuardedFileIO(properties).new_input(file.file_path)) > 0
        properties = _opened(store.properties)
        with pytest.raises(RetriableError, match=r"not trusted; set .*s3\.ssl\.cabundle"):
            probe(GuardedFileIO(properties), path)
        with pytest.raises(RetriableError, match="not trusted") as refused:
            _write(f"{store.warehouse}/t", properties, tmp_path)
        assert refused.value.code == "storage_unavailable"
        missing = _opened({**store.properties, "s3.ssl.cabundle": str(tmp_path / "none.pem")})
        with pytest.raises(ConfigError, match=r"s3.ssl.cabundle names no file"):
            probe(GuardedFileIO(missing), path)


def test_vended_shared_access_signatures_are_used(azurite: ObjectStore) -> None:
    """One for the account's host, as REST catalogs name it, precedes the account key."""
    assert isinstance(azurite, Azurite)
    host = f"{AZURITE_ACCOUNT}.dfs.core.windows.net"
    given = {**client_config({**SQL, "warehouse": "s3://b/w", **azurite.address}).properties}
    path = f"{azurite.warehouse}/{unique_name('probe')}"
    for key in (f"adls.sas-token.{host}", f"adls.sas-token.{AZURITE_ACCOUNT}", "adls.sas-token"):
        vended = {key: azurite.signature(dt.timedelta(minutes=10)), "adls.account-key": OTHER_KEY}
        probe(GuardedFileIO({**given, **vended}), path)
    with pytest.raises(RetriableError, match="refuses the credentials"):
        probe(
            GuardedFileIO(
                {**given, "adls.sas-token": azurite.signature(dt.timedelta(minutes=-10))}
            ),
            path,
        )


def _opened(properties: dict[str, str]) -> dict[str, str]:
    """Properties of the file client, from Iceberg's names."""
    given = {k: v for k, v in properties.items() if k != "warehouse"}
    return client_config({**SQL, "warehouse": "s3://b/w", **given}).properties


def _catalog(store: ObjectStore, folder: Path, **change: str) -> CatalogGateway:
    return open_catalog(
        "iceberg",
        {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": f"{store.warehouse}/{folder.name}",
            **store.properties,
            **change,
        },
    )


def _write(location: str, storage: dict[str, str], folder: Path) -> BatchResult:
    table = dataclasses.replace(plan(folder, ROWS), location=location, io_properties=storage)
    result = run_batches(config(), [table], [source([b'{"id":1}', b'{"id":2}'])])
    if result.error is not None:
        raise result.error
    return result
