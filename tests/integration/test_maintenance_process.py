"""``python -m worker.maintenance`` as a node starts it: over a private pipe, on real catalogs."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import psutil
import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.processes.ipc import VERSION, Channel
from coordinator.commit.committer import Committer
from coordinator.kernel.effects import TableCommitted
from tests.support.object_stores import FakeGcs, ObjectStore, started
from tests.support.places import SCHEMA
from tests.support.stack import S3_KEY, RestCatalog, S3Server
from tests.support.tables import (
    QuickClock,
    announced,
    connector,
    equality_delete,
    reference,
    table_commit,
    written_file,
)

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
        found = [e for e in self.events if e["event"] == "maintenance"]
        return [e for e in found if e["state"] != "RUNNING"]

    def arguments(self) -> str:
        """Arguments of the process and of its JVM."""
        process = psutil.Process(self._process.pid)
        return str([one.cmdline() for one in (process, *process.children(recursive=True))])

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


class Source:
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

    def now(self) -> Table:
        """The table as it is."""
        return self.catalog.load(tuple(self.name.split(".")))

    def upsert(self, keys: Sequence[int], text: str) -> None:
        """Commit a file with these rows, and deletes of their keys before it."""
        table = self.now()
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
        found = self.now().scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["name"]) for row in found) == sorted(self.rows.items())


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Process]]:
    """Starts processes, and ends those that are left."""
    made: list[Process] = []

    def started() -> Process:
        made.append(Process(tmp_path))
        return made[-1]

    yield started
    for process in made:
        process.kill()


class _PassedOn(socketserver.BaseRequestHandler):
    """A connection that is passed on to a Unix socket."""

    server: TcpServer

    def handle(self) -> None:
        """Pass on what both ends send, until one closes."""
        with socket.socket(socket.AF_UNIX) as target:
            target.connect(self.server.target)
            other = {self.request: target, target: self.request}
            while not self.server.is_closing:
                ready, _, _ = select.select(list(other), [], [], 0.05)
                for end in ready:
                    if not (data := end.recv(65_536)):
                        return
                    other[end].sendall(data)


class TcpServer(socketserver.ThreadingTCPServer):
    """A server with a Unix socket, at a TCP address: the Java client uses no other.

    Args:
        target: path of the socket.
    """

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _PassedOn)
        self.target = target
        self.is_closing = False


@pytest.fixture
def tcp_postgres(postgres: str) -> Iterator[str]:
    """SQLAlchemy URI of PostgreSQL at a TCP address."""
    found = urlsplit(postgres)
    [target] = Path(dict(parse_qsl(found.query))["host"]).glob(".s.PGSQL.*[0-9]")
    with TcpServer(str(target)) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.05,))
        serving.start()
        yield f"{found.scheme}://{found.username}@127.0.0.1:{server.server_address[1]}{found.path}"
        server.is_closing = True
        server.shutdown()
        serving.join()


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Google's store, where its emulator is installed."""
    with started(FakeGcs(tmp_path_factory.mktemp("gcs"))) as store:
        yield store


@pytest.fixture(params=["rest", "sqlite", "postgres", "s3", "glue", "gcs"])
def properties(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Properties of a catalog, as they follow ``iceberg.catalog.``."""
    if request.param == "rest":
        catalog: RestCatalog = request.getfixturevalue("rest_catalog")
        return catalog.properties
    found: dict[str, str] = request.getfixturevalue("sql_catalog_properties")
    if request.param == "postgres":
        return {**found, "uri": request.getfixturevalue("tcp_postgres")}
    if request.param == "gcs":
        store: ObjectStore = request.getfixturevalue("gcs")
        return {**found, **store.properties, "warehouse": f"{store.warehouse}/{tmp_path.name}"}
    if request.param in {"s3", "glue"}:
        server: S3Server = request.getfixturevalue("s3_server")
        found |= {**server.properties, "warehouse": f"s3://warehouse/{tmp_path.name}"}
    if request.param == "glue":
        del found["uri"]
        found |= {
            "type": "glue",
            "glue.endpoint": server.endpoint,
            "glue.region": "us-east-1",
            "glue.access-key-id": S3_KEY,
            "glue.secret-access-key": S3_KEY,
        }
    return found


@pytest.fixture
def source(properties: dict[str, str]) -> Iterator[Source]:
    """A table with upserts."""
    catalog = open_catalog("iceberg", properties)
    made = Source(catalog, properties)
    for turn in range(4):
        made.upsert(range(turn, 8), f"turn {turn}")
    yield made
    catalog.close()


def test_a_table_is_maintained_and_committed_to_again(
    source: Source, start: Callable[[], Process]
) -> None:
    """On every catalog and store; a commit of the coordinator follows that of the process."""
    process = start()
    config = {**source.raw, "iceberg.catalog.header.x-test": CANARY}
    process.maintain(config, source.job("delete-files", "manifests"))
    reports = process.reports()
    assert [(r["work"], r["state"]) for r in reports] == [
        ("delete-files", "DONE"),
        ("manifests", "DONE"),
    ], reports
    assert reports[0]["rewritten_files"] == 4
    assert CANARY not in process.arguments() + process.log.read_text()
    source.check()
    source.upsert([3, 9], "after")
    assert process.end() == 0


@pytest.mark.parametrize("properties", ["rest"], indirect=True)
def test_a_killed_maintenance_process_loses_and_duplicates_nothing(
    source: Source, start: Callable[[], Process]
) -> None:
    """The process dies with files written and not committed; the coordinator commits meanwhile."""
    data = Path(source.now().location().removeprefix("file://")) / "data"
    known = {file.name for file in data.iterdir()}
    process = start()
    process.maintain(source.raw, source.job("delete-files"))
    process.wait_until(lambda: {file.name for file in data.iterdir()} - known)
    process.kill()
    source.upsert([1, 2], "meanwhile")
    again = start()
    again.maintain(source.raw, source.job("delete-files"))
    assert again.reports()[0]["state"] == "DONE"
    source.check()
    assert again.end() == 0


@pytest.mark.parametrize("properties", ["rest"], indirect=True)
def test_what_cannot_be_maintained_is_reported(
    source: Source, start: Callable[[], Process]
) -> None:
    """A table that is gone, and a catalog that no test covers; other tables are maintained."""
    process = start()
    gone = {**source.job("small-files"), "table": "db.gone"}
    process.maintain(source.raw, gone, source.job("small-files"))
    reports = {r["table"]: r for r in process.reports()}
    assert (reports["db.gone"]["state"], reports["db.gone"]["code"]) == ("FAILED", "table_missing")
    assert reports[source.name]["state"] == "DONE"
    process.end()
    other = start()
    other.maintain({**source.raw, "iceberg.catalog.type": "hive"}, source.job("small-files"))
    assert [r["code"] for r in other.reports()] == ["maintenance_unsupported"]
    other.end()
