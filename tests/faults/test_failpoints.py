"""A crash at each failpoint, one after the other on one stack, while records come in.

``FAULT_POINT_RECORDS`` sets the number of records for each point. ``FAULT_SEEDS`` sets how often
each point crashes a process; each seed has another order and other times. ``FAULT_FIRST_SEED`` is
the first seed.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from connect.failpoints import COORDINATOR, WORKER
from connect.model.layout import TopicPartition
from tests.faults.checkers import check_counts_at_least
from tests.faults.payments_producer import PaymentsProducer
from tests.faults.payments_stack import (
    GROUP,
    PARTITIONS,
    SEEDS,
    TOPIC,
    CheckResult,
    PaymentsStack,
    connector,
    payments_stack,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS = int(os.environ.get("FAULT_POINT_RECORDS", "20000"))
RECORDS_PER_S = 40_000
# reached only when a connector starts or stops
RESTARTED = ("W13", "C1", "C2", "C16")
# the child process survives: Spark retries the batch of a Python worker that died
SURVIVED = ("W14",)
CHECK_EVERY = 8
IN_FLIGHT = "W9"
POINTS = (*WORKER, *COORDINATOR)  # other points are in tools that no stack runs
HOLD_MS = 3_000


@dataclass(slots=True)
class FailpointRun:
    """The stack of this module, and the points that were used.

    Attributes:
        run: the stack.
        producer: of the payments.
        armed: the folder in which files arm failpoints.
        fired: points that have crashed a process.
        began_s: monotonic clock.
    """

    run: PaymentsStack
    producer: PaymentsProducer
    armed: Path
    fired: list[str]
    began_s: float


@pytest.fixture(scope="module")
def failpoint_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailpointRun]:
    """Yield a stack with armed failpoints enabled and some records committed."""
    armed = tmp_path_factory.mktemp("armed")
    began_s = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
        with payments_stack(tmp_path_factory.mktemp("points"), connector()) as run:
            producer = run.producer(RECORDS_PER_S)
            failpoint_run = FailpointRun(run, producer, armed, [], began_s)
            produce(failpoint_run)
            run.wait_until_committed(producer.rows)
            yield failpoint_run


def shuffled_points() -> list[tuple[int, str]]:
    """Return the points of both processes in random order, once per seed."""
    out = []
    for seed in SEEDS:
        names = [name for name in POINTS if name != IN_FLIGHT]
        random.Random(seed).shuffle(names)
        out += [(seed, name) for name in names]
    return out


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "point"), shuffled_points())
def test_a_crash_at_a_failpoint_loses_and_duplicates_no_record(
    seed: int, point: str, failpoint_run: FailpointRun
) -> None:
    """The process crashes once at the point, and its successor continues."""
    run = failpoint_run.run
    if seed:
        time.sleep(random.Random(f"{seed} {point}").uniform(0, 2))
    victim = "worker" if point in WORKER else "coordinator"
    before = run.wait_until(lambda: run.pid(victim), victim)
    arm(failpoint_run, point, "crash")
    if point in RESTARTED:
        run.call("POST", "restart?includeTasks=true")
    produce(failpoint_run)
    wait_until_hit(failpoint_run, point)
    run.wait_until_committed(failpoint_run.producer.rows)
    assert run.committed() == failpoint_run.producer.rows
    if point in SURVIVED:
        assert run.pid(victim) == before
    else:
        run.wait_until(lambda: run.pid(victim) not in {None, before}, f"{victim} in its place")
    failpoint_run.fired.append(point)
    if len(failpoint_run.fired) % CHECK_EVERY == 0:
        check(failpoint_run)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("_seed", SEEDS)
def test_a_transaction_committed_after_its_worker_died_counts_once(
    _seed: int, failpoint_run: FailpointRun
) -> None:
    """W9: the worker dies after its commit request, which the frozen broker applies later.

    The broker commits before a successor has started; each record is in the tables once.
    """
    run, producer = failpoint_run.run, failpoint_run.producer
    broker = run.stack.broker
    assert broker is not None
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    run.put(connector(**{"tasks.max": "1"}))  # the tested transaction is the only one
    run.wait_until(lambda: len(run.status()["tasks"]) == 1, "one task")
    before = run.wait_until(lambda: run.pid("worker"), "worker")
    at = run.admin.committed(GROUP, partitions)
    arm(failpoint_run, "W4", "delay:1000")  # a batch with records: the next answer carries them
    producer.start(RECORDS, producer.total + RECORDS)
    wait_until_hit(failpoint_run, "W4")
    arm(failpoint_run, "W8", f"delay:{HOLD_MS}")
    wait_until_hit(failpoint_run, "W8")
    broker.pause()
    try:
        arm(failpoint_run, "W13", f"delay:{HOLD_MS}")
        arm(failpoint_run, IN_FLIGHT, "crash")
        run.wait_until(lambda: not psutil.pid_exists(before), "the worker's death")
        assert not (failpoint_run.armed / IN_FLIGHT).exists()
    finally:
        broker.resume()
    run.wait_until(lambda: run.admin.committed(GROUP, partitions) != at, "the commit")
    assert (failpoint_run.armed / "W13").exists(), (
        "a successor has begun: the commit may be its own"
    )
    producer.finish()
    run.wait_until_committed(producer.rows)
    assert run.committed() == producer.rows
    failpoint_run.fired.append(IN_FLIGHT)
    check(failpoint_run)
    run.put(connector())


@pytest.mark.timeout(600)
def test_every_failpoint_has_crashed_a_process(
    failpoint_run: FailpointRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every point was used, and the last check finds nothing."""
    result = check(failpoint_run)
    assert not check_counts_at_least(
        dict.fromkeys(POINTS, len(SEEDS)), Counter(failpoint_run.fired)
    )
    with capsys.disabled():
        print(
            f"\nfailpoints: {len(failpoint_run.fired)} crashes; {result}; "
            f"{time.monotonic() - failpoint_run.began_s:.0f} s in all"
        )


def produce(failpoint_run: FailpointRun) -> None:
    """Produce the records of one point, and wait until the broker has them."""
    producer = failpoint_run.producer
    producer.start(RECORDS, producer.total + RECORDS)
    producer.finish()


def arm(failpoint_run: FailpointRun, point: str, action: str) -> None:
    """Arm a failpoint."""
    hidden = failpoint_run.armed / f".{point}"
    hidden.write_text(action)
    hidden.rename(failpoint_run.armed / point)


def wait_until_hit(failpoint_run: FailpointRun, point: str) -> None:
    """Wait until a process has reached an armed failpoint."""
    failpoint_run.run.wait_until(
        lambda: not (failpoint_run.armed / point).exists(), f"hit of {point}"
    )


def check(failpoint_run: FailpointRun) -> CheckResult:
    """Check everything that is stored now."""
    result = failpoint_run.run.check_result()
    assert not result.findings
    assert result.records == failpoint_run.producer.total
    return result
