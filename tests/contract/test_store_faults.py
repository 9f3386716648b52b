"""An object store that is slow, refuses, cuts off, or says the opposite of what it did."""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSelector
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from connect.errors import RetriableError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.storage.store_file_io import SHARED_CLIENTS
from control_schemas.events import ContentFile
from coordinator.kernel.effects import TableCommitted, TableFailed
from coordinator.maintenance.snapshot_expiry import BATCH
from tests.differential.support import config, plan, run_batches, source
from tests.support.control_log import wait_until
from tests.support.faulty_store import FaultyStore
from tests.support.stack import S3Server, unique_name
from tests.support.table_harness import EXPIRING, SCHEMA, TableHarness, paths_of
from worker.batch.descriptors import BatchResult

ROWS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "s", StringType(), required=False),
)
TABLES = 12
_NUMBERS = itertools.count(60)
Fault = tuple[str, str, int]  # operation, fault, how often
# the client tries an operation three times by itself; a small file is one request
PASSING = [
    ("put", "refused:503", 1),
    ("put", "applied:cut", 1),
    ("put", "applied:slow:0.5", 3),
]
LASTING = [
    ("put", "refused:503", 3),
    ("put", "refused:cut", 4),
    ("put", "applied:500", 4),  # reported as failed, but written
    ("put", "refused:empty", 1),  # reported as written, but not there
]
PASSING_OF_LARGE = [
    ("begin", "refused:503", 1),
    ("part", "applied:cut", 1),
    ("complete", "applied:slow:0.5", 3),
    ("complete", "refused:error-in-200", 1),
]
LASTING_OF_LARGE = [
    ("begin", "refused:503", 3),
    ("part", "refused:cut", 9),
    ("complete", "refused:500", 3),
    ("complete", "applied:500", 4),
    ("complete", "refused:empty", 1),
]
LARGE_BYTES = 12 * 2**20  # the client uploads such a file in parts
FEW = {  # of the default suite: each operation, applied and not applied, passing and lasting
    ("put", "applied:cut", 1),
    ("put", "applied:500", 4),
    ("put", "refused:empty", 1),
    ("part", "applied:cut", 1),
    ("begin", "refused:503", 3),
    ("complete", "applied:500", 4),
}


def _marked(*faults: Fault) -> list[Any]:
    """Each fault as a parameter."""
    return [
        pytest.param(fault, id=str(fault), marks=() if fault in FEW else pytest.mark.matrix)
        for fault in faults
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


@pytest.mark.parametrize("fault", _marked(*PASSING, *LASTING))
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


def test_manifest_and_list_are_written_at_the_same_time(
    harness: TableHarness, store: FaultyStore
) -> None:
    """The store answers neither of them before it has both requests; the commit follows them."""
    store.fail("put", "applied:held", 2, path=".avro")
    commits = ThreadPoolExecutor(1)
    committing = commits.submit(harness.committer().commit, harness.round(0))
    wait_until(lambda: store.met == 2 or committing.done())
    assert not committing.done()
    assert not paths_of(harness.reloaded())
    store.heal()
    assert isinstance(committing.result(), TableCommitted)
    commits.shutdown()
    assert len(paths_of(harness.reloaded())) == 1


def test_the_requests_of_a_commit(harness: TableHarness, store: FaultyStore) -> None:
    """Each file is written and compared once; nothing is listed, and one file is read."""
    committer = harness.committer()
    for offset in range(3):
        assert isinstance(committer.commit(harness.round(offset)), TableCommitted)
    commit = harness.round(3)
    committer._memories[harness.table.name()].held_files.own.since_ms = 0  # long ago
    store.heal()
    assert isinstance(committer.commit(commit), TableCommitted)
    # a manifest, a list and a metadata file; PyArrow asks for the size of a file that it reads
    assert store.seen == {"put": 3, "head": 3 + 1, "get": 1}
    commit = harness.round(4, 20)
    store.heal()
    committed = harness.committer().commit(commit)
    assert isinstance(committed, TableCommitted)
    assert store.seen["head"] >= 20  # after a start each file is asked for


@pytest.mark.parametrize("path", ["-n0.avro", "/snap-"])
def test_files_of_a_commit_that_cannot_be_written_are_deleted(
    harness: TableHarness, store: FaultyStore, s3_server: S3Server, path: str
) -> None:
    """Also the one that the store has: no commit will list it."""
    store.fail("put", "refused:503", path=path)
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableFailed)
    assert store.met
    files = PyArrowFileIO(s3_server.properties).fs_by_scheme("s3", None)
    folder = f"{harness.table.location().removeprefix('s3://')}/metadata"
    left = [file.path for file in files.get_file_info(FileSelector(folder))]
    assert not [path for path in left if path.endswith(".avro")]
    store.heal()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)


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


@pytest.mark.parametrize("fault", _marked(*PASSING, *PASSING_OF_LARGE))
def test_data_files_survive_a_short_fault(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path, fault: Fault
) -> None:
    """The client retries; each announced file exists with its size."""
    is_large = fault in PASSING_OF_LARGE
    store.fail(*fault)
    result = _write(store, s3_server, tmp_path, is_large=is_large)
    assert store.met
    store.heal()
    _check_files(s3_server, result.files["db.t1"])


@pytest.mark.parametrize("fault", _marked(*LASTING, *LASTING_OF_LARGE))
def test_data_files_of_a_failed_batch_are_not_announced(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path, fault: Fault
) -> None:
    """The whole batch fails with the error of the store; then all of it is written."""
    is_large = fault in LASTING_OF_LARGE
    store.fail(*fault)
    with pytest.raises(RetriableError) as failed:
        _write(store, s3_server, tmp_path, is_large=is_large)
    assert failed.value.code == "storage_unavailable"
    assert failed.value.coordinates["table"] == "db.t1"
    store.heal()
    result = _write(store, s3_server, tmp_path, is_large=is_large)
    _check_files(s3_server, result.files["db.t1"])


def test_a_request_to_a_hanging_store_ends(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path
) -> None:
    """``s3.request-timeout`` bounds the wait; the batch fails."""
    store.fail("put", "refused:hang:30")
    with pytest.raises(RetriableError, match=r"(?i)time|slow"):
        _write(store, s3_server, tmp_path, **{"s3.request-timeout": "1"})


def test_files_of_many_tables_are_few_requests_at_the_same_time(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path
) -> None:
    """Each file is written and verified with one request; all tables share one client."""
    clients = SHARED_CLIENTS.made_count
    store.fail("put", "applied:held")
    written: list[BatchResult] = []
    tables = [f"db.t{number}" for number in range(TABLES)]
    writing = threading.Thread(
        target=lambda: written.append(_write(store, s3_server, tmp_path, tables=tables))
    )
    writing.start()
    while store.met < TABLES and writing.is_alive():
        time.sleep(0.01)
    assert store.seen == {"put": TABLES}
    store.heal()
    writing.join()
    [result] = written
    assert set(result.files) == set(tables)
    assert store.seen == {"head": TABLES}
    assert SHARED_CLIENTS.made_count == clients + 1


def test_a_failed_file_among_many_deletes_all_of_its_batch(
    store: FaultyStore, s3_server: S3Server, tmp_path: Path
) -> None:
    """Files that other threads ended before or after it are not left."""
    tables = [f"db.t{number}" for number in range(TABLES)]
    store.fail("put", "refused:403", path="/db.t5/")
    with pytest.raises(RetriableError) as failed:
        _write(store, s3_server, tmp_path, tables=tables)
    assert failed.value.code == "table_not_writable"
    assert failed.value.coordinates["table"] == "db.t5"
    files = PyArrowFileIO(s3_server.properties).fs_by_scheme("s3", None)
    bucket = s3_server.warehouse.removeprefix("s3://")
    found = files.get_file_info(FileSelector(f"{bucket}/{tmp_path.name}", recursive=True))
    assert not [file.path for file in found if file.is_file]


def _write(
    store: FaultyStore,
    s3_server: S3Server,
    folder: Path,
    *,
    is_large: bool = False,
    tables: Sequence[str] = ("db.t1",),
    **more: str,
) -> BatchResult:
    """Write two records; with several tables, each record goes to all of them."""
    properties = {**s3_server.properties, "s3.endpoint": store.uri, **more}
    # a client of its own for each test: the port of the proxy is that of all
    own = {"s3.connect-timeout": str(next(_NUMBERS)), **properties}
    location = f"{s3_server.warehouse}/{folder.name}/{unique_name('w')}"
    plain = {"write.parquet.compression-codec": "uncompressed"}
    plans = [
        dataclasses.replace(
            plan(folder, ROWS, name=name, properties=plain),
            location=f"{location}/{name}",
            io_properties=own,
        )
        for name in tables
    ]
    text = random.Random(1).randbytes(LARGE_BYTES // 2).hex() if is_large else "s"
    values = [f'{{"id":{n},"s":"{text}"}}'.encode() for n in range(2)]
    result = run_batches(config(**{"iceberg.tables": ",".join(tables)}), plans, [source(values)])
    if result.error is not None:
        raise result.error
    return result


def _check_files(s3_server: S3Server, files: Sequence[ContentFile]) -> None:
    io = PyArrowFileIO(s3_server.properties)
    [file] = files
    assert len(io.new_input(file.file_path)) == file.file_size_in_bytes
    assert file.record_count == 2
