"""Frozen and duplicate processes, a full disk and hanging transactions change no result."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from tests.faults.duplicate_processes import DuplicateProcess, duplicate_process
from tests.faults.payments_stack import NAME, TABLES, TOPIC
from tests.faults.readback import read_tables
from tests.faults.shared_stack import SharedStack

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(600),
]

ROUNDS_FROZEN = 15
ROUNDS_OF_THE_OTHER = 5
LAPS = 3
SILENCE_MS = "10000"
BROKER_PAUSE_S = 20.0
HOLD_MS = 3_000
TERM_WAIT_S = 40.0
STALL_MS = "3000"
BALLAST_STEP = 1024 * 1024


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """Freeze the process and its descendants while the block runs."""
    assert pid is not None
    stopped = freeze(pid)
    try:
        yield
    finally:
        for process in reversed(stopped):
            with suppress(psutil.NoSuchProcess):
                process.resume()


def freeze(pid: int) -> list[psutil.Process]:
    """Stop the process and its descendants, as a machine that hangs would."""
    first = psutil.Process(pid)
    first.suspend()
    every = [first, *first.children(recursive=True)]
    for process in every[1:]:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    return every


def metric(shared: SharedStack, name: str, **labels: str) -> float:
    """Sum of a metric of the node over the series with these labels."""
    text = httpx.get(f"{shared.run.stack.rest_url}/metrics", timeout=60).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"icefloe_{name}" and labels.items() <= sample.labels.items()
    )


def fenced_count(shared: SharedStack) -> float:
    """Return how often a unit of the node was fenced."""
    return metric(shared, "task_failures_total", connector=NAME, code="fenced")


def snapshot_count(shared: SharedStack) -> int:
    """Return the number of snapshots of the first table."""
    (table,) = read_tables("demo", shared.run.stack.catalog_properties, TABLES[:1], rows=False)
    return len(table.snapshots)


def test_a_coordinator_frozen_in_a_commit_is_fenced_when_it_continues(
    shared: SharedStack, tmp_path: Path
) -> None:
    """Another coordinator commits many rounds meanwhile; the prepared commit is rejected."""
    run = shared.run
    with (
        shared.fault("a frozen coordinator"),
        duplicate_process(run, "coordinator", tmp_path) as other,
    ):
        before = fenced_count(shared)
        shared.arm("C9", f"delay:{HOLD_MS}")
        shared.wait_until_hit("C9")
        with frozen(run.pid("coordinator")):
            other.start_unit(shared.config)
            was = snapshot_count(shared)
            run.wait_until(
                lambda: snapshot_count(shared) >= was + ROUNDS_FROZEN, "rounds of the other"
            )
        run.wait_until(lambda: fenced_count(shared) > before, "the zombie's fencing")
        other.wait_until("state", state="FAILED", code="fenced")


def test_a_worker_frozen_in_a_transaction_is_fenced_when_it_continues(
    shared: SharedStack, tmp_path: Path
) -> None:
    """Another worker runs its tasks meanwhile; no part of the transaction becomes visible."""
    run = shared.run
    with shared.fault("a frozen worker"), duplicate_process(run, "worker", tmp_path) as other:
        before, count = fenced_count(shared), len(other.layout().tasks)
        shared.arm("W8", f"delay:{HOLD_MS}")
        shared.wait_until_hit("W8")
        with frozen(run.pid("worker")):
            start_tasks(shared, other)
            was = snapshot_count(shared)
            run.wait_until(
                lambda: snapshot_count(shared) >= was + ROUNDS_OF_THE_OTHER, "rounds of the other"
            )
        run.wait_until(
            lambda: fenced_count(shared) >= before + count, "fencing of every task of the zombie"
        )
        other.wait_until_fenced(range(count))


def test_a_worker_that_stays_frozen_is_killed_and_replaced(shared: SharedStack) -> None:
    """After a long silence the node kills the worker with its children, and starts another one."""
    run = shared.run
    with silence_limit(shared, SILENCE_MS), shared.fault("a worker that stays frozen"):
        old = run.wait_until(lambda: run.pid("worker"), "a worker")
        shared.arm("W8", f"delay:{HOLD_MS}")
        shared.wait_until_hit("W8")
        stopped = freeze(old)
        run.wait_until(lambda: not psutil.pid_exists(old), "its death")
        run.wait_until(lambda: run.pid("worker") not in {None, old}, "a worker in its place")
        assert not psutil.wait_procs(stopped, timeout=60)[1]


def test_no_task_of_an_old_layout_writes_after_a_layout_change(
    shared: SharedStack, tmp_path: Path
) -> None:
    """Neither tasks in a second worker nor tasks that were frozen."""
    run = shared.run
    with (
        shared.fault("an old layout run twice"),
        duplicate_process(run, "worker", tmp_path) as other,
    ):
        with frozen(run.pid("worker")):
            count = start_tasks(shared, other)
            was = snapshot_count(shared)
            run.wait_until(lambda: snapshot_count(shared) > was, "a round of the other")
            with tasks_max(shared, "1"):
                other.wait_until_fenced(range(count))
        run.wait_until(
            lambda: states(shared) == ["RUNNING"] * count, "the tasks of the newest layout"
        )


def test_of_two_workers_with_one_task_the_later_one_fences_the_other(
    shared: SharedStack, tmp_path: Path
) -> None:
    """Both write, and no record is duplicated."""
    with (
        shared.fault("two workers of one task"),
        duplicate_process(shared.run, "worker", tmp_path) as other,
    ):
        for _ in range(LAPS):
            before = fenced_count(shared)
            other.start_unit(shared.config, 0)
            shared.run.wait_until(
                lambda before=before: fenced_count(shared) > before, "fencing of the first"
            )
            other.wait_until_fenced([0])


def test_a_worker_with_an_old_layout_reads_no_record(shared: SharedStack, tmp_path: Path) -> None:
    """It takes the transactional id from its owner, then fails because its layout is old."""
    run = shared.run
    with (
        shared.fault("a task of an old layout"),
        duplicate_process(run, "worker", tmp_path) as other,
    ):
        old = other.layout()
        with tasks_max(shared, "1"):
            run.wait_until(lambda: other.layout().number > old.number, "the new layout")
            run.wait_until(lambda: states(shared) == ["RUNNING"], "its task")
            for task in range(len(old.tasks)):
                before = fenced_count(shared)
                other.start_unit(shared.config, task, old)
                other.wait_until("state", state="FAILED", code="layout_superseded", task=task)
                if task == 0:  # the new layout has this task too
                    run.wait_until(
                        lambda before=before: fenced_count(shared) > before, "its fencing"
                    )


def test_the_stack_recovers_after_the_broker_was_paused(shared: SharedStack) -> None:
    """No operator is needed after twenty seconds without an answer."""
    with shared.fault("a paused broker"):
        broker = shared.run.stack.broker
        assert broker is not None
        with frozen(broker.pid):
            time.sleep(BROKER_PAUSE_S)


def test_a_node_drains_on_sigterm_and_the_next_one_continues(shared: SharedStack) -> None:
    """It ends with status 0 within its grace period."""
    run = shared.run
    with shared.fault("SIGTERM"):
        node = run.stack._node
        assert node is not None
        node.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + TERM_WAIT_S
        while node.is_running:
            assert time.monotonic() < deadline_s, run.diagnostics()
            time.sleep(0.05)
        assert node.returncode == 0
        run.stack.start_node()
        run.stack.wait_for_node()


def test_tasks_retry_while_the_disk_is_full(shared: SharedStack) -> None:
    """No file can be written; the metric counts retries; writing continues when space is free."""
    if not shared.is_small:
        pytest.skip("the warehouse has no separate file system: mount is not permitted")
    run = shared.run
    ballast = run.stack.state_dir / "warehouse" / "ballast"
    with shared.fault("a full disk"):
        before = metric(shared, "task_retries_total", connector=NAME)
        try:
            fill_file_system(ballast)
            run.wait_until(
                lambda: metric(shared, "task_retries_total", connector=NAME) > before,
                "a task that tries again",
            )
            rows = run.committed()
            time.sleep(3)
            assert run.committed() == rows
        finally:
            ballast.unlink(missing_ok=True)


def test_a_hanging_transaction_of_another_producer_is_reported(shared: SharedStack) -> None:
    """The metric reports the stalled partition; after the transaction no record is missing."""
    run = shared.run
    foreign = Producer(
        {
            "bootstrap.servers": run.stack.bootstrap_servers,
            "transactional.id": "foreign",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    run.put({**shared.config, "icefloe.lso.stalled.ms": STALL_MS})
    try:
        with shared.fault("a hanging transaction"):
            assert metric(shared, "lso_stalled", connector=NAME) == 0
            foreign.init_transactions(60)
            foreign.begin_transaction()
            foreign.produce(TOPIC, b"uncommitted", partition=0)
            assert foreign.flush(60) == 0
            try:
                run.wait_until(
                    lambda: metric(shared, "lso_stalled", connector=NAME) == 1,
                    "the alarm",
                )
            finally:
                foreign.abort_transaction(60)
            run.wait_until(
                lambda: metric(shared, "lso_stalled", connector=NAME) == 0,
                "the end of the alarm",
            )
    finally:
        run.put(shared.config)


def states(shared: SharedStack) -> list[str]:
    """Return the states of the tasks in the REST status."""
    return [task["state"] for task in shared.run.status()["tasks"]]


def start_tasks(shared: SharedStack, other: DuplicateProcess) -> int:
    """Start every task in the other worker; return their number."""
    count = len(other.layout().tasks)
    for task in range(count):
        other.start_unit(shared.config, task)
        other.wait_until("state", state="RUNNING", task=task)
    return count


@contextmanager
def tasks_max(shared: SharedStack, count: str) -> Iterator[None]:
    """Set ``tasks.max`` while the block runs."""
    shared.run.put({**shared.config, "tasks.max": count})
    try:
        yield
    finally:
        shared.run.put(shared.config)


@contextmanager
def silence_limit(shared: SharedStack, limit_ms: str) -> Iterator[None]:
    """Run a node with this silence limit for its children while the block runs."""
    properties = shared.run.stack._node_properties
    name = "icefloe.child.silence.max.ms"
    before = properties[name]
    try:
        properties[name] = limit_ms
        restart_node(shared)
        yield
    finally:
        properties[name] = before
        restart_node(shared)


def restart_node(shared: SharedStack) -> None:
    """Stop the node and start one with the present properties."""
    stack = shared.run.stack
    assert stack._node is not None
    stack._node.stop(timeout_ms=int(TERM_WAIT_S * 1000))
    stack.start_node()
    stack.wait_for_node()


def fill_file_system(file: Path) -> None:
    """Fill the file system of the file."""
    with file.open("wb", buffering=0) as out:
        for step in (BALLAST_STEP, 4096, 1):
            try:
                while True:
                    out.write(b"\0" * step)
            except OSError:
                continue
