"""Rounds that one coordinator process makes: with many connectors, and with few of many tables.

``python -m tests.bench.rounds [--connectors 1 10 30] [--seconds 10] [--latency-ms 0]`` runs
connectors with one table each, every one in a thread as in a coordinator, and starts the next round
at the end of the last. ``--tables 1 50 1000 --touched 3`` runs one connector that has committed to
all of its tables before. The catalog is in memory, in a process of its own; there is no broker. A
round decodes its DataWritten events, and commits two files of ten columns to each table.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from pyiceberg.table import Table

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.processes.child_process import ChildProcess, free_port
from control_schemas.codec import decode, encode
from control_schemas.events import DataWritten, Event
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.multi_table_commit import RoundCommitter
from coordinator.kernel.effects import CommitTables, TableCommitted
from tests.bench.commit import COLUMNS, SCHEMA
from tests.support.kernel_driver import P0, Driver
from tests.support.stack import answers
from tests.support.tables import connector, made_up_file, reference

_FILES = 2
_THREADS = 16


class Connector:
    """A connector without its broker.

    Args:
        name: of the connector.
        gateway: its catalog.
        tables: how many it has.
    """

    def __init__(self, name: str, gateway: CatalogGateway, tables: int) -> None:
        names = [f"bench.{name}_{number}" for number in range(tables)]
        self.tables = [gateway.create(tuple(each.split(".")), SCHEMA) for each in names]
        committer = Committer(gateway, connector(name, names), SystemClock())
        self._commits = RoundCommitter(committer, None, threads=_THREADS, name=name)
        self._driver = Driver(interval_ms=0)
        self._driver.layout(P0)

    def round(self, touched: Sequence[Table]) -> None:
        """Announce files of some tables and commit them."""
        driver = self._driver
        commit_id = driver.start()
        for table in touched:
            files = tuple(made_up_file(table, columns=COLUMNS) for _ in range(_FILES))
            written = DataWritten(commit_id, reference(table), files, ())
            driver.read(decode(encode(Event(uuid4(), 0, "connect-c", written))).payload)
        effects = driver.complete(commit_id, (P0, None))
        [commit] = effects
        assert isinstance(commit, CommitTables)
        assert len(commit.commits) == len(touched)
        self._commits.start(commit.commits)
        left = len(touched)
        while left:
            for outcome in self._commits.outcomes():
                assert isinstance(outcome, TableCommitted), outcome
                driver.kernel.receive(outcome, driver.now_ms)
                left -= 1
            time.sleep(0.002)
        driver.sent(commit_id)
        driver.now_ms += 1

    def close(self) -> None:
        """End the threads."""
        self._commits.close()


def many_connectors(uri: str, count: int, seconds: float) -> None:
    """Let connectors make rounds as fast as they can."""
    gateways = [open_catalog("iceberg", {"type": "rest", "uri": uri}) for _ in range(count)]
    connectors = [Connector(f"c{count}_{n}", gateway, 1) for n, gateway in enumerate(gateways)]
    rounds, ends = [0] * count, time.monotonic() + seconds

    def run(number: int) -> None:
        own = connectors[number]
        while time.monotonic() < ends:
            own.round(own.tables)
            rounds[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    cpu, start = time.process_time(), time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent, passed, total = time.process_time() - cpu, time.monotonic() - start, sum(rounds)
    print(
        f"{count} connectors: {total / passed:.0f} rounds/s, {spent / total * 1e3:.1f} ms CPU per "
        f"round, {spent / passed:.2f} cores",
        flush=True,
    )
    for own, gateway in zip(connectors, gateways, strict=True):
        own.close()
        gateway.close()


def many_tables(uri: str, count: int, touched: int) -> None:
    """Measure rounds that touch a few of many tables."""
    gateway = open_catalog("iceberg", {"type": "rest", "uri": uri})
    own = Connector(f"t{count}", gateway, count)
    own.round(own.tables)
    cpu_ms, wall_ms = [], []
    for _ in range(15):
        cpu, start = time.process_time(), time.perf_counter()
        own.round(own.tables[:touched])
        cpu_ms.append((time.process_time() - cpu) * 1e3)
        wall_ms.append((time.perf_counter() - start) * 1e3)
    used = min(touched, count)
    print(
        f"{used} of {count} tables: {statistics.median(cpu_ms):.1f} ms CPU per round, "
        f"{statistics.median(wall_ms):.0f} ms",
        flush=True,
    )
    own.close()
    gateway.close()


@contextmanager
def _catalog(latency_ms: int) -> Iterator[str]:
    """The address of a catalog that answers after a time."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [sys.executable, "-m", "tests.support.fakes.rest_catalog"]
        arguments = [str(port), f"file://{folder}", str(latency_ms)]
        log_file = Path(folder) / "catalog.log"
        server = ChildProcess("the catalog", [*command, *arguments], log_file=log_file)
        uri = f"http://127.0.0.1:{port}"
        server.wait_until(lambda: answers(f"{uri}/v1/config"), timeout_ms=30_000)
        try:
            yield uri
        finally:
            server.stop(timeout_ms=5_000)


def main() -> None:
    """Print a line per number of connectors or tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connectors", type=int, nargs="*", default=[1, 10, 30])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--latency-ms", type=int, default=0)
    parser.add_argument("--tables", type=int, nargs="*", default=[])
    parser.add_argument("--touched", type=int, default=3)
    given = parser.parse_args()
    with _catalog(given.latency_ms) as uri:
        for count in given.tables:
            many_tables(uri, count, given.touched)
        for count in given.connectors if not given.tables else ():
            many_connectors(uri, count, given.seconds)


if __name__ == "__main__":
    main()
