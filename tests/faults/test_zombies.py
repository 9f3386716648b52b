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

from tests.faults.arena import Arena
from tests.faults.chaos import NAME, TABLES, TOPIC
from tests.faults.readback import read_tables
from tests.faults.rivals import Rival, rival

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
    """The process and all that it started do nothing while the block runs."""
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


def metric(arena: Arena, name: str, **labels: str) -> float:
    """Sum of a metric of the node over the series with these labels."""
    text = httpx.get(f"{arena.run.stack.rest_url}/metrics", timeout=60).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == f"icefloe_{name}" and labels.items() <= sample.labels.items()
    )


def fenced(arena: Arena) -> float:
    """How often something of the node's was fenced."""
    return metric(arena, "task_failures_total", connector=NAME, code="fenced")


def snapshots(arena: Arena) -> int:
    """Snapshots of the first table."""
    (table,) = read_tables("demo", arena.run.stack.catalog_properties, TABLES[:1], rows=False)
    return len(table.snapshots)


def test_a_coordinator_frozen_in_a_commit_comes_back_as_a_zombie(
    arena: Arena, tmp_path: Path
) -> None:
    """Another one commits many rounds meanwhile: the commit that was prepared is rejected."""
    run = arena.run
    with arena.fault("a frozen coordinator"), rival(run, "coordinator", tmp_path) as other:
        before = fenced(arena)
        arena.arm("C9", f"delay:{HOLD_MS}")
        arena.wait_until_hit("C9")
        with frozen(run.pid("coordinator")):
            other.begin(arena.config)
            was = snapshots(arena)
            run.wait_until(lambda: snapshots(arena) >= was + ROUNDS_FROZEN, "rounds of the other")
        run.wait_until(lambda: fenced(arena) > before, "the zombie's fencing")
        other.wait_until("state", state="FAILED", code="fenced")


def test_a_worker_frozen_in_a_transaction_comes_back_as_a_zombie(
    arena: Arena, tmp_path: Path
) -> None:
    """Another one runs its tasks meanwhile: it is fenced, nothing of its transaction is seen."""
    run = arena.run
    with arena.fault("a frozen worker"), rival(run, "worker", tmp_path) as other:
        before, count = fenced(arena), len(other.layout().tasks)
        arena.arm("W8", f"delay:{HOLD_MS}")
        arena.wait_until_hit("W8")
        with frozen(run.pid("worker")):
            begin_tasks(arena, other)
            was = snapshots(arena)
            run.wait_until(
                lambda: snapshots(arena) >= was + ROUNDS_OF_THE_OTHER, "rounds of the other"
            )
        run.wait_until(
            lambda: fenced(arena) >= before + count, "fencing of every task of the zombie"
        )
        other.wait_until_fenced(range(count))


def test_a_worker_that_stays_frozen_is_killed(arena: Arena) -> None:
    """The node kills a worker and its children after a long silence and starts another."""
    run = arena.run
    with silence_limit(arena, SILENCE_MS), arena.fault("a worker that stays frozen"):
        old = run.wait_until(lambda: run.pid("worker"), "a worker")
        arena.arm("W8", f"delay:{HOLD_MS}")
        arena.wait_until_hit("W8")
        stopped = freeze(old)
        run.wait_until(lambda: not psutil.pid_exists(old), "its death")
        run.wait_until(lambda: run.pid("worker") not in {None, old}, "a worker in its place")
        assert not psutil.wait_procs(stopped, timeout=60)[1]


def test_a_layout_changes_while_the_old_one_runs_twice(arena: Arena, tmp_path: Path) -> None:
    """No task of the old layout writes, neither in a second worker nor after a freeze."""
    run = arena.run
    with arena.fault("an old layout run twice"), rival(run, "worker", tmp_path) as other:
        with frozen(run.pid("worker")):
            count = begin_tasks(arena, other)
            was = snapshots(arena)
            run.wait_until(lambda: snapshots(arena) > was, "a round of the other")
            with tasks_max(arena, "1"):
                other.wait_until_fenced(range(count))
        run.wait_until(
            lambda: states(arena) == ["RUNNING"] * count, "the tasks of the newest layout"
        )


def test_two_workers_of_one_task(arena: Arena, tmp_path: Path) -> None:
    """The worker that starts later fences the other; both write, and no record is duplicated."""
    with arena.fault("two workers of one task"), rival(arena.run, "worker", tmp_path) as other:
        for _ in range(LAPS):
            before = fenced(arena)
            other.begin(arena.config, 0)
            arena.run.wait_until(
                lambda before=before: fenced(arena) > before, "fencing of the first"
            )
            other.wait_until_fenced([0])


def test_a_second_worker_with_an_old_layout(arena: Arena, tmp_path: Path) -> None:
    """It takes the id from its owner, fails because its layout is old, and reads no offset."""
    run = arena.run
    with arena.fault("a task of an old layout"), rival(run, "worker", tmp_path) as other:
        old = other.layout()
        with tasks_max(arena, "1"):
            run.wait_until(lambda: other.layout().number > old.number, "the new layout")
            run.wait_until(lambda: states(arena) == ["RUNNING"], "its task")
            for task in range(len(old.tasks)):
                before = fenced(arena)
                other.begin(arena.config, task, old)
                other.wait_until("state", state="FAILED", code="layout_superseded", task=task)
                if task == 0:  # the one that the new layout has too
                    run.wait_until(lambda before=before: fenced(arena) > before, "its fencing")


def test_a_paused_broker(arena: Arena) -> None:
    """After twenty seconds without an answer the stack recovers without an operator."""
    with arena.fault("a paused broker"):
        broker = arena.run.stack.broker
        assert broker is not None
        with frozen(broker.pid):
            time.sleep(BROKER_PAUSE_S)


def test_sigterm_in_the_middle(arena: Arena) -> None:
    """The node drains within its grace and ends with 0; a new one continues."""
    run = arena.run
    with arena.fault("SIGTERM"):
        node = run.stack._node
        assert node is not None
        node.signal(signal.SIGTERM)
        deadline_s = time.monotonic() + TERM_WAIT_S
        while node.is_running:
            assert time.monotonic() < deadline_s, run.reported()
            time.sleep(0.05)
        assert node.returncode == 0
        run.stack.start_node()
        run.stack.wait_for_node()


def test_a_full_disk(arena: Arena) -> None:
    """No file can be written: tried again, said so, and over when there is room again."""
    if not arena.is_small:
        pytest.skip("the warehouse is no file system of its own: mount is not permitted")
    run = arena.run
    ballast = run.stack.state_dir / "warehouse" / "ballast"
    with arena.fault("a full disk"):
        before = metric(arena, "task_retries_total", connector=NAME)
        try:
            fill(ballast)
            run.wait_until(
                lambda: metric(arena, "task_retries_total", connector=NAME) > before,
                "a task that tries again",
            )
            rows = run.committed()
            time.sleep(3)
            assert run.committed() == rows
        finally:
            ballast.unlink(missing_ok=True)


def test_a_foreign_transaction_that_hangs(arena: Arena) -> None:
    """The stalled partition is reported; after the transaction every record is there once."""
    run = arena.run
    foreign = Producer(
        {
            "bootstrap.servers": run.stack.bootstrap_servers,
            "transactional.id": "foreign",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    run.put({**arena.config, "icefloe.lso.stalled.ms": STALL_MS})
    try:
        with arena.fault("a hanging transaction"):
            assert metric(arena, "lso_stalled", connector=NAME) == 0
            foreign.init_transactions(60)
            foreign.begin_transaction()
            foreign.produce(TOPIC, b"nothing that anybody may read", partition=0)
            assert foreign.flush(60) == 0
            try:
                run.wait_until(
                    lambda: metric(arena, "lso_stalled", connector=NAME) == 1,
                    "the alarm",
                )
            finally:
                foreign.abort_transaction(60)
            run.wait_until(
                lambda: metric(arena, "lso_stalled", connector=NAME) == 0,
                "the end of the alarm",
            )
    finally:
        run.put(arena.config)


def states(arena: Arena) -> list[str]:
    """Return the states of the tasks in the REST status."""
    return [task["state"] for task in arena.run.status()["tasks"]]


def begin_tasks(arena: Arena, other: Rival) -> int:
    """Let the other worker run every task; how many there are."""
    count = len(other.layout().tasks)
    for task in range(count):
        other.begin(arena.config, task)
        other.wait_until("state", state="RUNNING", task=task)
    return count


@contextmanager
def tasks_max(arena: Arena, count: str) -> Iterator[None]:
    """Another number of tasks while the block runs."""
    arena.run.put({**arena.config, "tasks.max": count})
    try:
        yield
    finally:
        arena.run.put(arena.config)


@contextmanager
def silence_limit(arena: Arena, limit_ms: str) -> Iterator[None]:
    """A node that waits only so long for a sign of life, while the block runs."""
    properties = arena.run.stack._node_properties
    name = "icefloe.child.silence.max.ms"
    before = properties[name]
    try:
        properties[name] = limit_ms
        restart_node(arena)
        yield
    finally:
        properties[name] = before
        restart_node(arena)


def restart_node(arena: Arena) -> None:
    """End the node in order and start one with the properties as they are now."""
    stack = arena.run.stack
    assert stack._node is not None
    stack._node.stop(timeout_ms=int(TERM_WAIT_S * 1000))
    stack.start_node()
    stack.wait_for_node()


def fill(file: Path) -> None:
    """Leave no byte on the file system that the file is on."""
    with file.open("wb", buffering=0) as out:
        for step in (BALLAST_STEP, 4096, 1):
            try:
                while True:
                    out.write(b"\0" * step)
            except OSError:
                continue
