"""A coordinator dies at C10 while a frozen catalog has its commit request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from connect.embedded.stack import Stack
from connect.failpoints import COORDINATOR
from tests.faults.payments_stack import NODE, TABLES, PaymentsStack, connector
from tests.faults.readback import read_tables
from tests.faults.shared_stack import RECORDS_PER_S, SharedStack
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
    """A stack with its tables in a REST catalog."""

    catalog: RestCatalog

    @property
    def catalog_properties(self) -> dict[str, str]:
        """Return the catalog properties as they follow ``iceberg.catalog.``."""
        return self.catalog.properties


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    """A REST catalog that the test may pause."""
    running = RestCatalog(tmp_path / "catalog")
    running.start()
    yield running
    running.stop()


def test_a_commit_applied_after_its_coordinator_died_adds_each_record_once(
    catalog: RestCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frozen catalog applies the commit when it continues; no client receives the answer."""
    armed = tmp_path / "armed"
    armed.mkdir()
    monkeypatch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
    stack = RestStack(tmp_path / "stack", node_properties=NODE)
    stack.catalog = catalog
    run = PaymentsStack(stack)
    # one table after the other: the tested commit is the only one in flight
    settings = {"iceberg.catalog.type": "rest", "iceberg.control.commit.threads": "1"}
    config = connector(**settings)
    try:
        run.start(config)
        shared = SharedStack(run, run.producer(RECORDS_PER_S), config, armed, is_small=False)
        with shared.fault("a late commit"):
            commit_late(shared, catalog)
    finally:
        run.close()


def commit_late(shared: SharedStack, catalog: RestCatalog) -> None:
    """Crash a coordinator while the frozen catalog has its request; then resume the catalog."""
    run, armed = shared.run, shared.armed
    before = run.wait_until(lambda: run.pid("coordinator"), "coordinator")
    shared.arm("C9", f"delay:{HOLD_MS}")
    shared.wait_until_hit("C9")
    was = snapshot_count(run)
    catalog.pause()
    try:
        shared.arm("C1", f"delay:{SUCCESSOR_HOLD_MS}")
        shared.arm("C2", "delay:0")
        shared.arm("C10", "crash")
        run.wait_until(lambda: not psutil.pid_exists(before), "the coordinator's death")
        assert not (armed / "C10").exists(), f"it did not die with {COORDINATOR['C10']}"
    finally:
        catalog.resume()
    run.wait_until(lambda: snapshot_count(run) > was, "the commit")
    assert (armed / "C2").exists(), "a successor has begun: the commit may be its own"


def snapshot_count(run: PaymentsStack) -> int:
    """Return the number of snapshots of all tables."""
    tables = read_tables("demo", run.stack.catalog_properties, TABLES, rows=False)
    return sum(len(table.snapshots) for table in tables)
