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
from tests.faults.chaos import GROUP, PARTITIONS, SEEDS, TOPIC, Field, Verdict, connector, field
from tests.faults.checkers import check_alive
from tests.faults.production import Production

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS = int(os.environ.get("FAULT_POINT_RECORDS", "20000"))
RECORDS_PER_S = 40_000
# come to at the start and at the end of a connector only
RESTARTED = ("W13", "C1", "C2", "C16")
# the child that dies of a crash; Spark tries a batch again whose Python worker dies
SURVIVED = ("W14",)
CHECK_EVERY = 8
IN_FLIGHT = "W9"
POINTS = (*WORKER, *COORDINATOR)  # the rest is in tools that no stack runs
HOLD_MS = 3_000


@dataclass(slots=True)
class Range:
    """The stack of this module, and what became of it.

    Attributes:
        run: the stack.
        production: of the payments.
        armed: the folder in which files arm failpoints.
        fired: points that have crashed a process.
        began_s: monotonic clock.
    """

    run: Field
    production: Production
    armed: Path
    fired: list[str]
    began_s: float


@pytest.fixture(scope="module")
def under_fire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """Yield a stack with armed failpoints enabled and some records committed."""
    armed = tmp_path_factory.mktemp("armed")
    began_s = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
        with field(tmp_path_factory.mktemp("points"), connector()) as run:
            production = run.production(RECORDS_PER_S)
            made = Range(run, production, armed, [], began_s)
            produce(made)
            run.wait_until_committed(production.rows)
            yield made


def in_some_order() -> list[tuple[int, str]]:
    """Points of both kinds mixed, so that neither child is restarted all the time."""
    out = []
    for seed in SEEDS:
        names = [name for name in POINTS if name != IN_FLIGHT]
        random.Random(seed).shuffle(names)
        out += [(seed, name) for name in names]
    return out


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "point"), in_some_order())
def test_nothing_is_lost_by_a_crash_at(seed: int, point: str, under_fire: Range) -> None:
    """The process crashes once at the point, its successor continues, each record is there once."""
    run = under_fire.run
    if seed:
        time.sleep(random.Random(f"{seed} {point}").uniform(0, 2))
    victim = "worker" if point in WORKER else "coordinator"
    before = run.wait_until(lambda: run.pid(victim), victim)
    arm(under_fire, point, "crash")
    if point in RESTARTED:
        run.call("POST", "restart?includeTasks=true")
    produce(under_fire)
    wait_until_hit(under_fire, point)
    run.wait_until_committed(under_fire.production.rows)
    assert run.committed() == under_fire.production.rows
    if point in SURVIVED:
        assert run.pid(victim) == before
    else:
        run.wait_until(lambda: run.pid(victim) not in {None, before}, f"{victim} in its place")
    under_fire.fired.append(point)
    if len(under_fire.fired) % CHECK_EVERY == 0:
        check(under_fire)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("_seed", SEEDS)
def test_a_commit_whose_answer_never_came_is_a_commit(_seed: int, under_fire: Range) -> None:
    """W9: the request to commit has left, the broker is frozen, the worker dies; then it thaws.

    The broker commits for a producer that is gone, before any successor has begun: each record is
    there once all the same.
    """
    run, production = under_fire.run, under_fire.production
    broker = run.stack.broker
    assert broker is not None
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    run.put(connector(**{"tasks.max": "1"}))  # the tested transaction is the only one
    run.wait_until(lambda: len(run.status()["tasks"]) == 1, "one task")
    before = run.wait_until(lambda: run.pid("worker"), "worker")
    at = run.admin.committed(GROUP, partitions)
    arm(under_fire, "W4", "delay:1000")  # a batch with records: the next answer carries them
    production.start(RECORDS, production.total + RECORDS)
    wait_until_hit(under_fire, "W4")
    arm(under_fire, "W8", f"delay:{HOLD_MS}")
    wait_until_hit(under_fire, "W8")
    broker.pause()
    try:
        arm(under_fire, "W13", f"delay:{HOLD_MS}")
        arm(under_fire, IN_FLIGHT, "crash")
        run.wait_until(lambda: not psutil.pid_exists(before), "the worker's death")
        assert not (under_fire.armed / IN_FLIGHT).exists()
    finally:
        broker.resume()
    run.wait_until(lambda: run.admin.committed(GROUP, partitions) != at, "the commit")
    assert (under_fire.armed / "W13").exists(), "a successor has begun: the commit may be its own"
    production.finish()
    run.wait_until_committed(production.rows)
    assert run.committed() == production.rows
    under_fire.fired.append(IN_FLIGHT)
    check(under_fire)
    run.put(connector())


@pytest.mark.timeout(600)
def test_every_point_has_fired(under_fire: Range, capsys: pytest.CaptureFixture[str]) -> None:
    """At the end: all of them, once; everything is where it belongs."""
    verdict = check(under_fire)
    assert not check_alive(dict.fromkeys(POINTS, len(SEEDS)), Counter(under_fire.fired))
    with capsys.disabled():
        print(
            f"\nfailpoints: {len(under_fire.fired)} crashes; {verdict}; "
            f"{time.monotonic() - under_fire.began_s:.0f} s in all"
        )


def produce(under_fire: Range) -> None:
    """A point's share of records."""
    production = under_fire.production
    production.start(RECORDS, production.total + RECORDS)
    production.finish()


def arm(under_fire: Range, point: str, action: str) -> None:
    """Arm a failpoint."""
    hidden = under_fire.armed / f".{point}"
    hidden.write_text(action)
    hidden.rename(under_fire.armed / point)


def wait_until_hit(under_fire: Range, point: str) -> None:
    """Wait until a process has reached an armed failpoint."""
    under_fire.run.wait_until(lambda: not (under_fire.armed / point).exists(), f"hit of {point}")


def check(under_fire: Range) -> Verdict:
    """Nothing is wrong with what is there."""
    verdict = under_fire.run.verdict()
    assert not verdict.wrong
    assert verdict.records == under_fire.production.total
    return verdict
