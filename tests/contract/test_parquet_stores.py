"""Parquet folders in S3: files, conditional commits, races, refusals."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from pyarrow.fs import S3FileSystem
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec

from connect import failpoints
from connect.errors import ConfigError, IcefloeError
from connect.gateways.catalog_properties import client_config
from connect.records.tables.partition_spec import spec_for
from coordinator.kernel.effects import CoordinatorFenced, TableCommitted, TableFailed
from tests.support.delta_tables import together
from tests.support.object_stores import ObjectStore
from tests.support.parquet_folders import SCHEMA, ParquetRig
from tests.support.stack import S3Server
from tests.support.tables import table_commit

ROUNDS = 4


@pytest.fixture(params=[pytest.param("s3_server", marks=pytest.mark.matrix), "s3proxy"])
def store(request: pytest.FixtureRequest) -> ObjectStore | S3Server:
    """Each server."""
    made: ObjectStore | S3Server = request.getfixturevalue(request.param)
    return made


def place_in(
    store: ObjectStore | S3Server, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
) -> ParquetRig:
    """A table in a store."""
    settings = {f"iceberg.catalog.{key}": value for key, value in store.properties.items()}
    return ParquetRig(f"{store.warehouse}/{uuid4()}", raw=settings, spec=spec)


def ids(store: ObjectStore | S3Server, rig: ParquetRig) -> list[int]:
    """Ids as PyArrow's dataset reads them."""
    return rig.ids(filesystem(store))


def filesystem(store: ObjectStore | S3Server) -> S3FileSystem:
    """The store as PyArrow opens it."""
    given = store.properties
    return S3FileSystem(
        access_key=given["s3.access-key-id"],
        secret_key=given["s3.secret-access-key"],
        endpoint_override=given["s3.endpoint"],
        region="us-east-1",
    )


def test_a_store_holds_a_folder(store: ObjectStore | S3Server) -> None:
    """Files, partitions that need escapes, and log; a second coordinator adds nothing."""
    rig = place_in(store, spec_for(("name",), SCHEMA))
    worker = rig.committer()
    commits = [rig.round(n) for n in range(ROUNDS)]
    for commit in commits:
        assert isinstance(worker.commit(commit), TableCommitted)
    odd = rig.announcement([{"id": 100, "name": "a=b/c %41 é'+ü"}, {"id": 101}], ROUNDS)
    assert isinstance(worker.commit(table_commit([odd])), TableCommitted)
    outcome = rig.committer().commit(commits[-1])
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert ids(store, rig) == [*range(2 * ROUNDS), 100, 101]


@pytest.mark.parametrize("points", ["P1=raise,P2=raise", "P2=raise", "P3=raise"])
def test_a_commit_is_published_by_the_next_coordinator(s3_server: S3Server, points: str) -> None:
    """Where the first ended after its commit; nothing is left staged."""
    rig = place_in(s3_server)
    commit = rig.round(1, 2, 3)
    failpoints.configure(points)
    try:
        assert isinstance(rig.committer().commit(commit), TableFailed)
    finally:
        failpoints.configure("")
    assert isinstance(rig.committer().commit(commit), TableCommitted)
    assert ids(s3_server, rig) == list(range(6))
    version = rig.tables().load(("db", "events"))
    assert not version.log.has_folder("_icefloe/staged")
    assert version.version == 1


def test_of_several_coordinators_one_commits(store: ObjectStore | S3Server) -> None:
    """The store refuses to write a commit twice."""
    rig = place_in(store)
    for offset in range(ROUNDS):
        commit = rig.round(offset)
        outcomes = together([rig.committer() for _ in range(3)], commit)
        assert all(
            isinstance(o, TableCommitted | CoordinatorFenced) or o.is_retriable for o in outcomes
        ), outcomes
        assert isinstance(rig.committer().commit(commit), TableCommitted)
    assert ids(store, rig) == list(range(2 * ROUNDS))
    assert rig.tables().load(("db", "events")).version == ROUNDS


def test_a_log_is_listed_in_pages(s3_server: S3Server) -> None:
    """From a name on, over more names than an answer holds."""
    rig = place_in(s3_server)
    store: Any = rig.tables().load(("db", "events")).log._store
    store.page_names = 3
    for number in range(9):
        store.replace(f"many/{number}", b"")
    assert store.listed("many", "1") == [(str(number), 0) for number in range(2, 9)]
    assert store.has_files("many")
    assert not store.has_files("man")
    store.delete(f"many/{number}" for number in range(9))
    assert store.listed("many", "") == []
    assert not store.has_files("many")


def test_a_refused_key_is_named(s3proxy: ObjectStore) -> None:
    """As an error that an operator can act on."""
    rig = place_in(s3proxy)
    settings = {f"iceberg.catalog.{k}": v for k, v in s3proxy.properties.items()}
    settings["iceberg.catalog.s3.secret-access-key"] = "wrong"
    with pytest.raises(IcefloeError) as caught:
        ParquetRig(str(rig.config.raw["icefloe.parquet.location"]), raw=settings)
    assert caught.value.code == "forbidden"


def test_a_role_is_refused(s3_server: S3Server) -> None:
    """The log's client does not take one."""
    rig = place_in(s3_server)
    settings = {f"iceberg.catalog.{k}": v for k, v in s3_server.properties.items()}
    settings["iceberg.catalog.client.assume-role.arn"] = "arn:aws:iam::1:role/r"
    with pytest.raises(ConfigError, match="role"):
        ParquetRig(str(rig.config.raw["icefloe.parquet.location"]), raw=settings)
    assert client_config(rig.config.catalog_properties).kind == "parquet"
