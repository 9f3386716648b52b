"""A crash at each failpoint, one after the other on one stack, while records come in.

``FAULT_POINT_RECORDS`` sets how many records each point gets.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from connect.failpoints import COORDINATOR, NAMES, WORKER
from tests.faults.chaos import Field, Verdict, connector, field
from tests.faults.production import Production

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]

RECORDS = int(os.environ.get("FAULT_POINT_RECORDS", "20000"))
RECORDS_PER_S = 40_000
# come to at the start and at the end of a connector only
RESTARTED = ("W13", "C1", "C2", "C16")
# the child that dies of a crash; Spark tries a batch again whose Python worker dies
SURVIVED = ("W14",)
CHECK_EVERY = 8


@dataclass(slots=True)
class Range:
    """The stack of this module, and what became of it.

    Attributes:
        run: the stack.
        production: of the payments.
        armed: the folder in which files arm failpoints.
        fired: points that have crashed somebody.
        began_s: monotonic clock.
    """

    run: Field
    production: Production
    armed: Path
    fired: list[str]
    began_s: float


@pytest.fixture(scope="module")
def under_fire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """A stack whose processes look for armed failpoints, with some records committed."""
    armed = tmp_path_factory.mktemp("armed")
    began_s = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ICEFLOE_FAILPOINTS_DIR", str(armed))
        with field(tmp_path_factory.mktemp("points"), connector()) as run:
            production = run.production(RECORDS_PER_S)
            made = Range(run, production, armed, [], began_s)
            produce(made)
            run.until_committed(production.rows)
            yield made


def in_some_order() -> list[str]:
    """Points of both kinds mixed, so that neither child is restarted all the time."""
    names = list(NAMES)
    random.Random(0).shuffle(names)
    return names


@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", in_some_order())
def test_nothing_is_lost_by_a_crash_at(point: str, under_fire: Range) -> None:
    """The process dies there once, the next one goes on, and each record is there once."""
    run = under_fire.run
    victim = "worker" if point in WORKER else "coordinator"
    before = run.until(lambda: run.pid(victim), victim)
    (under_fire.armed / f".{point}").write_text("crash")
    (under_fire.armed / f".{point}").rename(under_fire.armed / point)
    if point in RESTARTED:
        run.call("POST", "restart?includeTasks=true")
    produce(under_fire)
    run.until(lambda: not (under_fire.armed / point).exists(), f"crash at {point}")
    run.until_committed(under_fire.production.rows)
    assert run.committed() == under_fire.production.rows
    if point in SURVIVED:
        assert run.pid(victim) == before
    else:
        run.until(lambda: run.pid(victim) not in {None, before}, f"{victim} in its place")
    under_fire.fired.append(point)
    if len(under_fire.fired) % CHECK_EVERY == 0:
        check(under_fire)


@pytest.mark.timeout(600)
def test_every_point_has_fired(under_fire: Range, capsys: pytest.CaptureFixture[str]) -> None:
    """At the end: all of them, once; everything is where it belongs."""
    verdict = check(under_fire)
    assert set(under_fire.fired) == WORKER.keys() | COORDINATOR.keys()
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


def check(under_fire: Range) -> Verdict:
    """Nothing is wrong with what is there."""
    verdict = under_fire.run.verdict()
    assert not verdict.wrong
    assert verdict.records == under_fire.production.total
    return verdict
