"""An object store that is slow, refuses, cuts off, or says the opposite of what it did."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.errors import RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from control_schemas.events import ContentFile
from coordinator.kernel.effects import TableCommitted, TableFailed
from coordinator.maintenance.snapshot_expiry import BATCH
from tests.differential.support import config, plan, run_batches, source
from tests.support.faulty_store import FaultyStore
from tests.support.stack import S3Server, unique_name
from tests.support.table_harness import EXPIRING, SCHEMA, TableHarness, paths_of
from worker.batch.descriptors import BatchResult

ROWS = Schema(NestedField(1, "id", LongType(), required=False))
Fault = tuple[str, str, int]  # operation, fault, how often
# the client tries an operation three times by itself
PASSING = [
    ("begin", "refused:503", 1),
    ("part", "applied:cut", 1),
    ("complete", "applied:slow:0.5", 3),
    ("complete", "refused:error-in-200", 1),
]
LASTING = [
    ("begin", "refused:503", 3),
    ("part", "refused:cut", 4),  # the last part: what is there so far is no file
    ("complete", "refused:500", 3),
    ("complete", "applied:500", 4),  # reported as failed, but written
    ("complete", "refused:empty", 1),  # reported as written, but not there
]


@pytest.fixture(scope="module")
def store(s3_server: S3Server) -> Iterator[FaultyStore]:
    """A proxy before the S3 API."""
    running = FaultyStore(s3_server.endpoint)
    yield running
    running.close()


@pytest.fixture(autouse=True)
def no_faults_left(store: FaultyStore) -> Iterator[None]:
    """Every test begins with a store that only forwards."""
    store.heal()
    yield
    store.heal()


@pytest.fixture
def catalog(
    sql_catalog_properties: dict[str, str], s3_server: S3Server, store: FaultyStore, tmp_path: Path
) -> Iterator[CatalogGateway]:
    """SQLite, with its metadata in the store."""
    properties = {
        **sql_catalog_properties,
        **s3_server.properties,
        "s3.endpoint": store.uri,
        "warehouse": f"{s3_server.warehouse}/{tmp_path.name}",
    }
    gateway = open_catalog("iceberg", properties)
    yield gateway
    gateway.close()


@pytest.fixture
def harness(catalog: CatalogGateway) -> TableHarness:
    """A fresh table."""
    return TableHarness(catalog, catalog.create(("db", unique_name("t")), SCHEMA))


# ------------------------------------------------------------------ coordinator


@pytest.mark.parametrize("fault", [*PASSING, *LASTING], ids=str)
def test_faults_while_writing_metadata_add_each_file_once(
    harness: TableHarness, store: FaultyStore, fault: Fault
) -> None:
    """Manifests, lists and metadata files, and the table stays readable."""
    committer = harness.committer()
    offset = 0
    is_lasting = fault in LASTING
    for path in ("-n0.avro", "/snap-", ".metadata.json") if is_lasting else ("/snap-",):
        store.fail(*fault, path=path)
        commit = harness.round(offset)
        outcome = committer.commit(commit)
        assert store.met, path
        store.heal()
        if isinstance(outcome, TableFailed):
            assert (outcome.code, outcome.is_retriable) == ("storage_unavailable", True), path
            outcome = committer.commit(commit)
        assert isinstance(outcome, TableCommitted), path
        offset += 1
    files = paths_of(harness.reloaded())
    assert len(files) == len(set(files)) == offset
    for snapshot in harness.reloaded().metadata.snapshots:
        assert snapshot.manifests(harness.reloaded().io)


def test_a_commit_waits_while_the_store_cannot_be_read(
    harness: TableHarness, store: FaultyStore
) -> None:
    """The table does not fail."""
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    commit = harness.round(1)
    for operation in ("get", "head"):
        store.fail(operation, "refused:503")
        outcome = committer.commit(commit)
        store.heal()
        assert isinstance(outcome, TableFailed), operation
        assert (outcome.code, outcome.is_retriable) == ("storage_unavailable", True)
    assert isinstance(committer.commit(commit), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 2


def test_a_session_ends_while_a_deletion_of_expired_files_hangs(
    harness: TableHarness, store: FaultyStore
) -> None:
    """The session waits for a bounded time, and no further file is deleted after it."""
    committer = harness.committer(settings=EXPIRING)
    for offset in range(BATCH + 3):
        assert isinstance(committer.commit(harness.untimed_round(offset)), TableCommitted)
        if offset == BATCH:  # the next commits remove the first snapshots
            store.fail("delete", "applied:held", path="/metadata/")
    [cleaner] = [t for t in threading.enumerate() if t.name == "expiry-c"]
    while not store.met:
        time.sleep(0.01)
    committer.close()
    assert cleaner.is_alive()
    deletions = store.seen["delete"]
    store.heal()
    cleaner.join()
    assert deletions == 1
    assert not store.seen["delete"]


# ------------------------------------------------------------------ worker


@pytest.mark.parametrize("fault", PASSING, ids=str)
def test_data_files_survive_a_short_fault(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path, fault: Fault
) -> None:
    """The client retries; each announced file exists with its size."""
    store.fail(*fault)
    result = _write(store, s3_server, tmp_path)
    assert store.met
    store.heal()
    _check_files(s3_server, result.files["db.t1"])


@pytest.mark.parametrize("fault", LASTING, ids=str)
def test_data_files_of_a_failed_batch_are_not_announced(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path, fault: Fault
) -> None:
    """The whole batch fails with the error of the store; then all of it is written."""
    store.fail(*fault)
    with pytest.raises(RetriableError) as failed:
        _write(store, s3_server, tmp_path)
    assert failed.value.code == "storage_unavailable"
    assert failed.value.coordinates["table"] == "db.t1"
    store.heal()
    result = _write(store, s3_server, tmp_path)
    _check_files(s3_server, result.files["db.t1"])


def test_a_request_to_a_hanging_store_ends(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path
) -> None:
    """``s3.request-timeout`` bounds the wait; the batch fails."""
    store.fail("begin", "refused:hang:30")
    with pytest.raises(RetriableError, match=r"(?i)time|slow"):
        _write(store, s3_server, tmp_path, **{"s3.request-timeout": "1"})


def _write(store: FaultyStore, s3_server: S3Server, folder: Path, **more: str) -> BatchResult:
    properties = {**s3_server.properties, "s3.endpoint": store.uri, **more}
    table = dataclasses.replace(
        plan(folder, ROWS),
        location=f"{s3_server.warehouse}/{unique_name('w')}",
        io_properties=properties,
    )
    result = run_batches(config(), [table], [source([b'{"id":1}', b'{"id":2}'])])
    if result.error is not None:
        raise result.error
    return result


def _check_files(s3_server: S3Server, files: Sequence[ContentFile]) -> None:
    io = PyArrowFileIO(s3_server.properties)
    [file] = files
    assert len(io.new_input(file.file_path)) == file.file_size_in_bytes
    assert file.record_count == 2
