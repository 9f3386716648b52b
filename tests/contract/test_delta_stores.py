"""Delta tables in every store: files, conditional commits, races, refusals."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from uuid import uuid4

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from connect.errors import IcefloeError
from connect.gateways.catalog_properties import client_config
from connect.gateways.delta.delta_storage import storage_options
from coordinator.commit.table_logs.delta_files import delta_file
from coordinator.commit.table_logs.log_committer import LogCommitter
from coordinator.kernel.effects import CoordinatorFenced, TableCommitted
from tests.support.delta_tables import DeltaRig, together
from tests.support.listing_proxy import listing_proxy
from tests.support.object_stores import ObjectStore
from tests.support.stack import S3Server
from tests.support.tables import QuickClock
from tests.support.upserts import DeltaUpserts, row

ROUNDS = 4


@pytest.fixture(
    scope="module", params=["s3proxy", pytest.param("azurite", marks=pytest.mark.matrix)]
)
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    """Each kind of store."""
    made: ObjectStore = request.getfixturevalue(request.param)
    if request.param == "azurite":
        made = copy.copy(made)
        with listing_proxy(f"http://127.0.0.1:{made.port}") as made.port:
            yield made
    else:
        yield made


def place_in(store: ObjectStore | S3Server) -> DeltaRig:
    """A table in a store, with its options for the reader."""
    location = f"{store.warehouse}/{uuid4()}"
    settings = {f"iceberg.catalog.{key}": value for key, value in store.properties.items()}
    made = DeltaRig(location, raw=settings)
    client = client_config(made.config.catalog_properties).properties
    made.options = storage_options(client, location)
    return made


def test_a_store_holds_a_table(store: ObjectStore) -> None:
    """Files and log, with paths that the store escapes; a second coordinator adds nothing."""
    rig = place_in(store)
    check_rounds(rig)


def test_amazons_interface_holds_a_table(s3_server: S3Server) -> None:
    """As `test_a_store_holds_a_table`."""
    check_rounds(place_in(s3_server))


def test_rows_are_replaced_in_a_store(store: ObjectStore) -> None:
    """Files are read, copied and deleted there; partitions have names that the store escapes."""
    settings = {f"iceberg.catalog.{key}": value for key, value in store.properties.items()}
    region = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = DeltaUpserts(f"{store.warehouse}/{uuid4()}", region, **settings)
    worker = t.log_committer()
    assert isinstance(
        worker.commit(t.round(([row(1, 1, "a b%"), row(2, 2, "ü")], []))), TableCommitted
    )
    commit = t.round(([row(1, 3, "ü")], []), ([row(3, 4, "x")], [row(2, 0)]))
    assert isinstance(worker.commit(commit), TableCommitted)
    t.check()


def check_rounds(rig: DeltaRig) -> None:
    """Commit rounds, with a coordinator that starts again."""
    worker = LogCommitter(rig.store(), delta_file, rig.config, QuickClock())
    commits = [rig.round(n) for n in range(ROUNDS)]
    for commit in commits:
        assert isinstance(worker.commit(commit), TableCommitted)
    outcome = LogCommitter(rig.store(), delta_file, rig.config, QuickClock()).commit(commits[-1])
    assert isinstance(outcome, TableCommitted)
    assert outcome.snapshot_id is None
    assert rig.ids() == list(range(2 * ROUNDS))


def test_of_two_coordinators_one_commits(store: ObjectStore) -> None:
    """The store refuses to write a version of the log twice."""
    rig = place_in(store)
    for offset in range(ROUNDS):
        commit = rig.round(offset)
        workers = [
            LogCommitter(rig.store(), delta_file, rig.config, QuickClock()) for _ in range(3)
        ]
        outcomes = together(workers, commit)
        assert all(
            isinstance(o, TableCommitted | CoordinatorFenced) or (o.is_retriable) for o in outcomes
        ), outcomes
        last = LogCommitter(rig.store(), delta_file, rig.config, QuickClock()).commit(commit)
        assert isinstance(last, TableCommitted)
    assert rig.ids() == list(range(2 * ROUNDS))
    assert rig.now().version() == ROUNDS


def test_a_refused_key_is_named(s3proxy: ObjectStore) -> None:
    """With the store's message."""
    rig = place_in(s3proxy)
    settings = {f"iceberg.catalog.{k}": v for k, v in s3proxy.properties.items()}
    settings["iceberg.catalog.s3.secret-access-key"] = "wrong"
    with pytest.raises(IcefloeError) as caught:
        DeltaRig(str(rig.config.raw["icefloe.delta.location"]), raw=settings)
    assert caught.value.code == "forbidden"
