"""Time of a commit: that of Icefloe and that of the catalog, measured separately.

Run: ``python -m tests.bench.commit [--snapshots 500] [--files 100] [--tables 50] [--rest]``, or
with ``--latency-ms 150`` for a round of many tables against a catalog that answers so late, each
table alone and all in one request. That catalog is in memory, in a process of its own.
``--histories 10 10000``, with ``--rest`` or on SQLite, compares tables with a made-up history.
``--light`` measures commits a second, with a catalog in a process of its own that takes little CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.processes.child_process import ChildProcess, free_port
from control_schemas.events import ContentFile
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.multi_table_commit import JointCommitter, RoundCommitter
from coordinator.commit.table_committers import CommitterSettings, open_committer
from coordinator.control_log_check import ControlLogCheck
from coordinator.kernel.effects import TableCommit, TableCommitted
from tests.support.stack import RestCatalog, answers
from tests.support.table_histories import with_history
from tests.support.tables import (
    announced,
    connector,
    made_up_file,
    reference,
    table_commit,
)

COLUMNS = 10
ROUNDS = 5
SCHEMA = Schema(
    *(NestedField(n, f"c{n}", LongType(), required=False) for n in range(1, COLUMNS + 1))
)


class TimedCatalog(CatalogGateway):
    """Measures the time of the catalog."""

    spent_ms = 0.0

    def load(self, *args: Any, **options: Any) -> Table:
        """Call the gateway and add its time."""
        with self._timed():
            return super().load(*args, **options)

    def commit(self, *args: Any, **options: Any) -> Table:
        """Call the gateway and add its time."""
        with self._timed():
            return super().commit(*args, **options)

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent_ms += (time.perf_counter() - start) * 1000


def _files(table: Table, count: int) -> list[ContentFile]:
    return [made_up_file(table, columns=COLUMNS) for _ in range(count)]


def _round(table: Table, offset: int, count: int) -> TableCommit:
    return table_commit([announced(reference(table), _files(table, count), offset=offset)])


def _commit(committer: Committer, commit: TableCommit) -> None:
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableCommitted), outcome


def one_table(gateway: TimedCatalog, snapshots: int, files: int) -> None:
    """Measure commits to a table with a history."""
    table = gateway.create(("bench", "one"), SCHEMA)
    committer = Committer(gateway, connector("c", ["bench.one"]), SystemClock())
    for offset in range(snapshots):
        _commit(committer, _round(table, offset, 1))
    own, catalog = [], []
    for offset in range(snapshots, snapshots + 15):
        commit = _round(table, offset, files)
        gateway.spent_ms = 0.0
        start = time.perf_counter()
        _commit(committer, commit)
        total_ms = (time.perf_counter() - start) * 1000
        own.append(total_ms - gateway.spent_ms)
        catalog.append(gateway.spent_ms)
    print(
        f"{files} files onto {snapshots} snapshots: own p50 {statistics.median(own):.1f} ms, "
        f"max {max(own):.1f}; catalog p50 {statistics.median(catalog):.1f} ms"
    )
    start = time.perf_counter()
    fresh = Committer(gateway, connector("c", ["bench.one"]), SystemClock())
    _commit(fresh, _round(table, snapshots + 15, files))
    print(f"  first commit of a new coordinator: {(time.perf_counter() - start) * 1000:.1f} ms")


def long_history(plain: CatalogGateway, snapshots: int, files: int) -> None:
    """Measure commits to a table with a made-up history, after the coordinator's first minute."""
    name = ("bench", f"history_{snapshots}")
    table = plain.create(name, SCHEMA)
    first = Committer(plain, connector("c", [".".join(name)]), SystemClock())
    _commit(first, _round(table, 0, 1))
    table = with_history(plain, table, snapshots)
    gateway = TimedCatalog(plain.name, plain.config)
    committer = Committer(gateway, connector("c", [".".join(name)]), SystemClock())
    for offset in range(3):
        _commit(committer, _round(table, snapshots + offset, files))
        held = committer._memories[name].held_files
        held.own.since_ms, held._foreign_ms = 0, 0
    cpu_ms, wall_ms = [], []
    for offset in range(3, 18):
        commit = _round(table, snapshots + offset, files)
        cpu_s, start_s = time.process_time(), time.perf_counter()
        _commit(committer, commit)
        cpu_ms.append((time.process_time() - cpu_s) * 1000)
        wall_ms.append((time.perf_counter() - start_s) * 1000)
    print(
        f"{files} files onto {snapshots} snapshots: own CPU p50 {statistics.median(cpu_ms):.1f} "
        f"ms, with the catalog p50 {statistics.median(wall_ms):.1f} ms"
    )
    location = gateway.load(name).metadata_location
    if plain.config.kind != "rest" and location.startswith("file:"):
        _measure_copy(Path(location.removeprefix("file://")))
    gateway.close()


def _measure_copy(file: Path) -> None:
    """Measure what reading and writing the bytes of a metadata file takes, as pieces."""
    cpu_ms, buffer = [], memoryview(bytearray(1024 * 1024))
    for _ in range(15):
        copy = file.with_name(uuid4().hex)
        cpu_s = time.process_time()
        with file.open("rb", buffering=0) as read, copy.open("wb", buffering=0) as written:
            while size := read.readinto(buffer):
                written.write(buffer[:size])
        cpu_ms.append((time.process_time() - cpu_s) * 1000)
        copy.unlink()
    megabytes = file.stat().st_size / 1e6
    print(f"  a copy of its {megabytes:.2f} MB: CPU p50 {statistics.median(cpu_ms):.1f} ms")


def many_tables(gateway: CatalogGateway, tables: int) -> None:
    """Measure a round of ten files per table."""
    names = [f"bench.many_{n}" for n in range(tables)]
    made = [gateway.create(tuple(name.split(".")), SCHEMA) for name in names]
    for threads in (1, 4, 8, 16):
        committer = Committer(gateway, connector("c", names), SystemClock())
        first = [_round(t, threads * 10, 10) for t in made]
        second = [_round(t, threads * 10 + 1, 10) for t in made]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda c: _commit(committer, c), first))  # noqa: B023
            start = time.perf_counter()
            list(pool.map(lambda c: _commit(committer, c), second))  # noqa: B023
            ms = (time.perf_counter() - start) * 1000
        print(f"{tables} tables, {threads} threads: {ms:.0f} ms")


def late_catalog(tables: int, latency_ms: int, folder: str) -> None:
    """Measure a round of ten files per table with a slow catalog."""
    server, properties = _catalog_process("rest_catalog", folder, str(latency_ms))
    gateway = open_catalog("iceberg", properties)
    names = [f"bench.many_{n}" for n in range(tables)]
    made = [gateway.create(tuple(name.split(".")), SCHEMA) for name in names]
    offset = 0
    for threads in (4, 16, 32, 50):
        for is_atomic in (False, True):
            committer = Committer(gateway, connector("c", names), SystemClock())
            round_committer = RoundCommitter(
                committer,
                JointCommitter(committer, gateway) if is_atomic else None,
                threads=threads,
                name="bench",
            )
            spent = []
            for _ in range(6):
                commits = [_round(table, offset, 10) for table in made]
                offset += 1
                spent.append(_commit_ms(round_committer, commits))
            round_committer.close()
            how = "in one request" if is_atomic else "each alone"
            wall, cpu = (
                statistics.median(measurements) for measurements in zip(*spent[1:], strict=True)
            )
            print(
                f"{tables} tables {how}, {threads} threads, answers after {latency_ms} ms: "
                f"p50 {wall:.0f} ms, own CPU {cpu:.0f} ms"
            )
    gateway.close()
    server.stop(timeout_ms=5_000)


def _catalog_process(
    module: str, folder: str, *arguments: str
) -> tuple[ChildProcess, dict[str, str]]:
    port = free_port()
    name = f"tests.support.fakes.{module}"
    command = [sys.executable, "-m", name, str(port), f"file://{folder}", *arguments]
    server = ChildProcess("the catalog", command, log_file=Path(folder) / "catalog.log")
    uri = f"http://127.0.0.1:{port}"
    server.wait_until(lambda: answers(f"{uri}/v1/config"), timeout_ms=30_000)
    return server, {"type": "rest", "uri": uri}


def commits_per_second(properties: dict[str, str], tables: int, files: int) -> None:
    """Measure rounds of one connector with many tables.

    Args:
        properties: of the catalog.
        tables: of the connector.
        files: for each table and round.
    """
    gateway = open_catalog("iceberg", properties)
    names = [f"bench.light_{n}" for n in range(tables)]
    made = [gateway.create(tuple(name.split(".")), SCHEMA) for name in names]
    config = connector("c", names)
    config = replace(config, catalog_properties=properties)
    settings = CommitterSettings(config, ControlLogCheck(None, config.control_topic))
    offsets = itertools.count()
    with contextlib.ExitStack() as closing:
        committer, _ = open_committer(settings, SystemClock(), lambda *_: None, closing)
        rounds = RoundCommitter(committer, None, threads=16, name="bench")
        for _ in range(2):  # clients are opened, tables are read with their history
            _commit_ms(rounds, [_round(t, next(offsets), files) for t in made])
        commits = [[_round(t, next(offsets), files) for t in made] for _ in range(ROUNDS)]
        spent = [_commit_ms(rounds, each) for each in commits]
        number, wall_s = tables * ROUNDS, sum(wall for wall, _ in spent) / 1000
        own_ms = sum(cpu for _, cpu in spent)
        print(
            f"{tables} tables, {files} files each: {number / wall_s:.0f} commits a second; CPU of "
            f"a commit: {own_ms / number:.2f} ms; {own_ms / wall_s / 1000:.2f} of "
            f"{os.cpu_count()} cores"
        )
        rounds.close()
    gateway.close()


def _commit_ms(round_committer: RoundCommitter, commits: list[TableCommit]) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    round_committer.start(commits)
    left = len(commits)
    while left:
        for outcome in round_committer.outcomes():
            assert isinstance(outcome, TableCommitted), outcome
            left -= 1
        time.sleep(0.005)
    return (time.perf_counter() - start) * 1000, (time.process_time() - cpu) * 1000


def main() -> None:
    """Measure on SQLite, or on the REST catalog."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", type=int, default=500)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--histories", type=int, nargs="*", default=[])
    parser.add_argument("--latency-ms", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.latency_ms is not None:
            late_catalog(given.tables, given.latency_ms, folder)
            return
        if given.light:
            light, properties = _catalog_process("light_catalog", folder)
            commits_per_second(properties, given.tables, given.files)
            light.stop(timeout_ms=5_000)
            return
        server = RestCatalog(Path(folder)) if given.rest else None
        if server:
            server.start()
            properties = server.properties
        else:
            properties = {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            }
        plain = open_catalog("iceberg", properties)
        for snapshots in given.histories:
            long_history(plain, snapshots, given.files)
        if given.histories:
            plain.close()
            if server:
                server.stop()
            return
        gateway = TimedCatalog("iceberg", plain.config)
        one_table(gateway, given.snapshots, given.files)
        many_tables(gateway, given.tables)
        gateway.close()
        plain.close()
        if server:
            server.stop()


if __name__ == "__main__":
    main()
