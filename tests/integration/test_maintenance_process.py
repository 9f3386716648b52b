"""``python -m worker.maintenance`` as a node starts it: over a private pipe, on real catalogs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.processes.ipc import VERSION, Channel
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import TableCommitted
from tests.support.object_stores import FakeGcs, ObjectStore, started
from tests.support.processes import arguments
from tests.support.stack import S3_KEY, RestCatalog, S3Server
from tests.support.table_harness import SCHEMA
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    equality_delete,
    reference,
    table_commit,
    written_file,
)
from tests.support.tcp_socket import tcp_uri
from worker.spark.class_archive import find_archive

pytestmark = [pytest.mark.spark, pytest.mark.java]
CANARY = "canary-5e1f"
KEY = "iceberg__maintenance__rewrite_data_files__"
MAINTAINED = {f"{KEY}enabled": "true", f"{KEY}min_input_files": "2"}
TIMEOUT_S = 240
NODE = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "config.storage.topic": "configs",
    "status.storage.topic": "statuses",
    "icefloe.maintenance.heap.mb": "512",
}


class Process:
    """A maintenance process and what it reports.

    Args:
        folder: of its log and temporary files.
    """

    def __init__(self, folder: Path) -> None:
        ours, theirs = socket.socketpair()
        self.log = folder / "maintenance.log"
        self._state = folder / "state"
        with theirs, self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "worker.maintenance"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "ICEFLOE_IPC_FD": str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=Path(__file__).parents[2],
            )
        self.channel = Channel(ours)
        self.events: list[dict[str, Any]] = []
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        for event in self.channel.receive():
            self.events.append(event)

    def maintain(self, config: Mapping[str, str], *jobs: Mapping[str, Any]) -> None:
        """Send the jobs of a connector."""
        properties = {**NODE, "icefloe.state.dir": str(self._state)}
        self.channel.send({"op": "configure", "version": VERSION, "properties": properties})
        command = {"op": "maintain", "connector": "c", "config": dict(config)}
        self.channel.send({**command, "jobs": list(jobs), "tables_at_once": 2})

    def wait_until(self, is_so: Callable[[], object]) -> None:
        """Wait for it."""
        deadline = time.monotonic() + TIMEOUT_S
        while not is_so():
            is_late = self._process.poll() is not None or time.monotonic() > deadline
            assert not is_late, self.log.read_text()[-5000:]
            time.sleep(0.01)

    def reports(self) -> list[dict[str, Any]]:
        """Wait for the end of the work; its reports without those of a begin."""
        self.wait_until(lambda: any(e["event"] == "maintenance_ended" for e in list(self.events)))
        reports = [e for e in self.events if e["event"] == "maintenance"]
        return [e for e in reports if e["state"] != "RUNNING"]

    def arguments(self) -> str:
        """Arguments of the process and of its JVM."""
        process = psutil.Process(self._process.pid)
        return str([arguments(one) for one in (process, *process.children(recursive=True))])

    def end(self) -> int:
        """End it as a node does; the status."""
        self.channel.send({"op": "shutdown", "grace_ms": 0})
        status = self._process.wait(TIMEOUT_S)
        self._listening.join(TIMEOUT_S)
        self.channel.close()
        return status

    def kill(self) -> None:
        """Kill it and its JVM."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(TIMEOUT_S)
        self._listening.join(TIMEOUT_S)
        self.channel.close()


class MaintainedTable:
    """A table, a coordinator that commits upserts to it, and the rows that it must have."""

    def __init__(self, catalog: CatalogGateway, properties: Mapping[str, str]) -> None:
        self.catalog = catalog
        self.name = f"db.m_{uuid4().hex[:8]}"
        self.rows: dict[int, str] = {}
        self._offset = 0
        self._table = catalog.create(tuple(self.name.split(".")), SCHEMA, PartitionSpec(), None)
        self.config = connector("c", [self.name], **MAINTAINED)
        self.raw = {
            **self.config.raw,
            **{f"iceberg.catalog.{k}": v for k, v in properties.items()},
        }
        self._committer = Committer(catalog, self.config, QuickClock())

    def reloaded(self) -> Table:
        """The table as the catalog has it at present."""
        return self.catalog.load(tuple(self.name.split(".")))

    def upsert(self, keys: Sequence[int], text: str) -> None:
        """Commit a file with these rows, and deletes of their keys before it."""
        table = self.reloaded()
        data = [written_file(table, [{"id": key, "name": text} for key in keys])]
        deletes = [equality_delete(table, key) for key in keys]
        event = announced(reference(table), data, deletes, offset=self._offset)
        self._offset += 1
        outcome = self._committer.commit(table_commit([event]))
        assert isinstance(outcome, TableCommitted), outcome
        self.rows.update(dict.fromkeys(keys, text))

    def job(self, *work: str, bytes_max: int = 10**12) -> dict[str, Any]:
        """A job of the node."""
        given = {"bytes_max": bytes_max, "older_than_ms": None}
        return {"table": self.name, "work": list(work), **given}

    def check(self) -> None:
        """PyIceberg, which refuses equality deletes, reads exactly the rows."""
        rows = self.reloaded().scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["name"]) for row in rows) == sorted(self.rows.items())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Process]]:
    """Starts processes, and ends those that are left."""
    processes: list[Process] = []

    def started() -> Process:
        processes.append(Process(tmp_path))
        return processes[-1]

    yield started
    for process in processes:
        process.kill()


@pytest.fixture
def tcp_postgres(postgres: str) -> Iterator[str]:
    """SQLAlchemy URI of PostgreSQL at a TCP address."""
    with tcp_uri(postgres) as uri:
        yield uri


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Google's store, where its emulator is installed."""
    with started(FakeGcs(tmp_path_factory.mktemp("gcs"))) as store:
        yield store


@pytest.fixture(scope="module")
def rest_catalog_on_s3(
    s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RestCatalog]:
    """Iceberg's Java REST catalog with its tables in S3."""
    catalog = RestCatalog(tmp_path_factory.mktemp("rest-on-s3"), s3_server)
    catalog.start()
    yield catalog
    catalog.stop()


# a start of Spark takes ten seconds of a core: the default suite has "postgres" in a test below,
# and SQLite in ``tests/e2e/test_maintenance.py``
OTHERS = ("rest", "sqlite", "postgres", "postgres-s3", "s3", "glue")
CATALOGS = [
    *(pytest.param(name, marks=pytest.mark.matrix) for name in ("rest-s3", "gcs")),
    *(pytest.param(name, marks=pytest.mark.faults) for name in OTHERS),
]


@pytest.fixture(params=CATALOGS)
def properties(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Properties of a catalog, as they follow ``iceberg.catalog.``."""
    if request.param == "rest":
        catalog: RestCatalog = request.getfixturevalue("rest_catalog")
        return catalog.properties
    if request.param == "rest-s3":
        with_store: RestCatalog = request.getfixturevalue("rest_catalog_on_s3")
        return with_store.properties
    properties: dict[str, str] = request.getfixturevalue("sql_catalog_properties")
    if request.param in {"postgres", "postgres-s3"}:
        properties |= {"uri": request.getfixturevalue("tcp_postgres")}
    if request.param == "gcs":
        store: ObjectStore = request.getfixturevalue("gcs")
        return {**properties, **store.properties, "warehouse": f"{store.warehouse}/{tmp_path.name}"}
    if request.param in {"s3", "postgres-s3", "glue"}:
        server: S3Server = request.getfixturevalue("s3_server")
        properties |= {**server.properties, "warehouse": f"s3://warehouse/{tmp_path.name}"}
    if request.param == "glue":
        del properties["uri"]
        properties |= {
            "type": "glue",
            "glue.endpoint": server.endpoint,
            "glue.region": "us-east-1",
            "glue.access-key-id": S3_KEY,
            "glue.secret-access-key": S3_KEY,
        }
    return properties


@pytest.fixture
def maintained(properties: dict[str, str]) -> Iterator[MaintainedTable]:
    """A table with upserts."""
    catalog = open_catalog("iceberg", properties)
    table = MaintainedTable(catalog, properties)
    for turn in range(4):
        table.upsert(range(turn, 8), f"turn {turn}")
    yield table
    catalog.close()


def check_work(maintained: MaintainedTable, process: Process) -> list[dict[str, Any]]:
    """Let the process maintain the table; return the reports of it.

    A table that is gone does not stop the work, and no process has a secret as an argument.
    """
    config = {**maintained.raw, "iceberg.catalog.header.x-test": CANARY}
    dropped = {**maintained.job("manifests"), "table": "db.gone"}
    process.maintain(config, dropped, maintained.job("delete-files", "manifests"))
    # the JVM ends with its work
    process.wait_until(lambda: any(e.get("state") == "RUNNING" for e in list(process.events)))
    of_start = process.arguments()
    every = process.reports()
    failed = [(r["state"], r["code"]) for r in every if r["table"] == "db.gone"]
    assert failed == [("FAILED", "table_missing")]
    reports = [r for r in every if r["table"] == maintained.name]
    assert [(r["work"], r["state"]) for r in reports] == [
        ("delete-files", "DONE"),
        ("manifests", "DONE"),
    ], reports
    assert CANARY not in of_start + process.log.read_text()
    # the jars for Google's store are in front of those of Spark, so that no archive fits
    has_archive = find_archive() is not None and "gs://" not in maintained.reloaded().location()
    assert ("SharedArchiveFile" in of_start) == has_archive
    maintained.check()
    return reports


def test_a_table_is_maintained_and_committed_to_again(
    maintained: MaintainedTable, start: Callable[[], Process]
) -> None:
    """On every catalog and store; a commit of the coordinator follows that of the process."""
    process = start()
    assert check_work(maintained, process)[0]["rewritten_files"] == 4
    maintained.upsert([3, 9], "after")
    assert process.end() == 0


@pytest.mark.parametrize("properties", ["postgres"], indirect=True)
def test_a_killed_maintenance_process_loses_and_duplicates_nothing(
    maintained: MaintainedTable, start: Callable[[], Process]
) -> None:
    """The process dies with files written and not committed; the coordinator commits meanwhile."""
    data = Path(maintained.reloaded().location().removeprefix("file://")) / "data"
    known = {file.name for file in data.iterdir()}
    process = start()
    process.maintain(maintained.raw, maintained.job("delete-files"))
    process.wait_until(lambda: {file.name for file in data.iterdir()} - known)
    process.kill()
    maintained.upsert([1, 2], "meanwhile")
    again = start()
    check_work(maintained, again)
    maintained.upsert([3, 9], "after")
    assert again.end() == 0


@pytest.mark.matrix
@pytest.mark.parametrize("properties", ["glue"], indirect=True)
def test_what_cannot_be_maintained_is_reported(
    maintained: MaintainedTable, start: Callable[[], Process]
) -> None:
    """A table that is gone, and a catalog that no test covers; other tables are maintained."""
    process = start()
    dropped = {**maintained.job("small-files", "manifests"), "table": "db.gone"}
    process.maintain(maintained.raw, dropped, maintained.job("small-files"))
    reports = {(r["table"], r["work"]): r for r in process.reports()}
    for work in ("small-files", "manifests"):
        report = reports["db.gone", work]
        assert (report["state"], report["code"]) == ("FAILED", "table_missing")
    assert reports[maintained.name, "small-files"]["state"] == "DONE"
    process.end()
    other = start()
    other.maintain(
        {**maintained.raw, "iceberg.catalog.type": "hive"}, maintained.job("small-files")
    )
    assert [r["code"] for r in other.reports()] == ["maintenance_unsupported"]
    other.end()
