"""C10 for certain: a coordinator dies while the catalog, frozen, has its request to commit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from connect.embedded.stack import Stack
from connect.failpoints import COORDINATOR
from tests.faults.arena import RECORDS_PER_S, Arena
from tests.faults.chaos import NODE, TABLES, Field, connector
from tests.faults.readback import read_tables
from tests.support.stack import RestCatalog

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(600),
]

HOLD_MS = 3_000
SUCCESSOR_HOLD_MS = 15_000


class RestStack(Stack):
    """A stack whose tables are in a REST catalog."""

    catalog: RestCatalog

    @property
    def catalog_properties(self) -> dict[str, str]:
        """As a connector names it after ``iceberg.catalog.``."""
        return self.catalog.properties


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    """A REST catalog that may be frozen."""
    running = RestCatalog(tmp_path / "catalog")
    running.start()
    yield running
    running.stop()


def test_a_commit_that_lands_after_its_sender_died(
    catalog: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog commits when it thaws, no client gets the answer: each record is there once."""
    armed = tmp_path / "armed"
    armed.mkdir()
    monkeypatch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
    stack = RestStack(tmp_path / "stack", node_properties=NODE)
    stack.catalog = catalog
    run = Field(stack)
    # one table after the other: the tested commit is the only one in flight
    one = {"iceberg.catalog.type": "rest", "iceberg.control.commit.threads": "1"}
    config = connector(**one)
    try:
        run.start(config)
        arena = Arena(run, run.production(RECORDS_PER_S), config, armed, is_small=False)
        with arena.fault("a commit that lands late"):
            commit_late(arena, catalog)
    finally:
        run.close()


def commit_late(arena: Arena, catalog: RestCatalog) -> None:
    """Let a coordinator die while the frozen catalog has its request; then it thaws."""
    run, armed = arena.run, arena.armed
    before = run.wait_until(lambda: run.pid("coordinator"), "coordinator")
    arena.arm("C9", f"delay:{HOLD_MS}")
    arena.wait_until_hit("C9")
    was = snapshots(run)
    catalog.pause()
    try:
        arena.arm("C1", f"delay:{SUCCESSOR_HOLD_MS}")
        arena.arm("C2", "delay:0")
        arena.arm("C10", "crash")
        run.wait_until(lambda: not psutil.pid_exists(before), "the coordinator's death")
        assert not (armed / "C10").exists(), f"it did not die with {COORDINATOR['C10']}"
    finally:
        catalog.resume()
    run.wait_until(lambda: snapshots(run) > was, "the commit")
    assert (armed / "C2").exists(), "a successor has begun: the commit may be its own"


def snapshots(run: Field) -> int:
    """Of all tables."""
    tables = read_tables("demo", run.stack.catalog_properties, TABLES, rows=False)
    return sum(len(table.snapshots) for table in tables)
