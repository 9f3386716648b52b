"""Units in their threads: one after the other, each with its generation."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
import structlog.testing
from hypothesis import given
from hypothesis import strategies as st

from connect.clock import SystemClock
from connect.errors import ConfigError, Fenced
from connect.processes.child_main import Child
from connect.processes.hosted_units import HostedUnit, HostedUnits
from connect.processes.unit_reports import Inventory, UnitReport

WAIT_S = 60


class RecordingPipe:
    """Keeps the reports."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.reports: list[tuple[int, str, bool]] = []

    def send(self, message: Mapping[str, Any]) -> bool:
        """As the real one."""
        with self.changed:
            self.reports.append((message["generation"], message["state"], message["ended"]))
            self.changed.notify_all()
        return True

    def has(self, last: str) -> bool:
        """Whether this last report of a generation comes in time."""
        with self.changed:
            return self.changed.wait_for(
                lambda: last in [f"{s} of {g}" for g, s, has_ended in self.reports if has_ended],
                WAIT_S,
            )


class SteppedClock(SystemClock):
    """Moves when it is set."""

    now = 0

    def monotonic_ms(self) -> int:
        """The instant that the test has set."""
        return self.now


class BlockingWork:
    """Runs until it may end; a stop alone does not end it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.is_stopping = False
        self._error = error

    def run(self) -> None:
        """Wait."""
        self.begun.set()
        assert self.may_end.wait(WAIT_S)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Remember it."""
        self.is_stopping = True


def units(pipe: Any, wait_ms: int = WAIT_S * 1000) -> HostedUnits:
    return HostedUnits(Child(pipe), SystemClock(), predecessor_wait_ms=wait_ms)


def start(of: HostedUnits, generation: int, work: BlockingWork) -> HostedUnit | None:
    layout = {"layout": 1}
    command = {"connector": "c", "generation": generation, "layout": layout}
    return of.start(command, lambda _: work)


class NativePanic(BaseException):
    """As native libraries raise it: no ``Exception``."""


def test_a_unit_that_any_error_ends_is_reported() -> None:
    """Else its state would be RUNNING for ever, without a thread."""
    pipe, work = RecordingPipe(), BlockingWork(NativePanic("index out of bounds"))
    hosted = units(pipe)
    unit = start(hosted, 1, work)
    work.may_end.set()
    assert pipe.has("FAILED of 1")
    assert unit is not None
    assert "NativePanic" in str(unit.reported().trace)


@pytest.mark.parametrize("error", [ConfigError("wrong"), KeyError("bug"), NativePanic("panic")])
def test_a_unit_that_cannot_be_made_ends_alone(error: BaseException) -> None:
    """The process takes the next command."""
    pipe, other = RecordingPipe(), BlockingWork()
    hosted = units(pipe)

    def make(_: HostedUnit) -> BlockingWork:
        raise error

    hosted.start({"connector": "bad", "generation": 1, "layout": {"layout": 1}}, make)
    assert pipe.has("FAILED of 1")
    start(hosted, 2, other)
    assert other.begun.wait(WAIT_S)
    other.may_end.set()


def test_a_unit_starts_after_its_predecessor_has_ended() -> None:
    """They share a transactional id and would fence each other."""
    pipe, first, second = RecordingPipe(), BlockingWork(), BlockingWork()
    hosted = units(pipe)
    start(hosted, 1, first)
    assert first.begun.wait(WAIT_S)
    start(hosted, 2, second)
    assert first.is_stopping
    assert not second.begun.wait(0.2)
    assert [u.generation for u in hosted.inventory().units] == [1, 2]
    first.may_end.set()
    assert second.begun.wait(WAIT_S)
    assert pipe.has("STOPPED of 1")
    assert [u.generation for u in hosted.inventory().units] == [2]
    second.may_end.set()


def test_the_wait_for_a_hanging_predecessor_is_bounded() -> None:
    """Then the new unit starts, and the old one is still in the inventory."""
    pipe, first, second = RecordingPipe(), BlockingWork(), BlockingWork()
    hosted = units(pipe, wait_ms=50)
    start(hosted, 1, first)
    start(hosted, 2, second)
    assert second.begun.wait(WAIT_S)
    assert [u.generation for u in hosted.inventory().units] == [1, 2]
    for work in (first, second):
        work.may_end.set()


def test_a_start_of_an_older_generation_changes_nothing() -> None:
    """Nor does a repeated start."""
    pipe, work = RecordingPipe(), BlockingWork()
    hosted = units(pipe)
    start(hosted, 2, work)
    assert start(hosted, 2, BlockingWork()) is None
    assert start(hosted, 1, BlockingWork()) is None
    assert not work.is_stopping
    assert hosted.inventory().last_generation == 2
    work.may_end.set()


def test_a_wait_is_in_the_inventory_and_in_the_log() -> None:
    """Logged when it lasts, and again later; removed when the unit works."""
    clock, pipe, work = SteppedClock(), RecordingPipe(), BlockingWork()
    hosted = HostedUnits(Child(pipe), clock, predecessor_wait_ms=WAIT_S * 1000)
    unit = start(hosted, 1, work)
    assert unit is not None
    assert work.begun.wait(WAIT_S)
    with structlog.testing.capture_logs() as logged:
        hosted.waits_for(unit, "members of group g to leave")
        for _ in range(10):
            hosted.waits_for(unit, "members of group g to leave")
            clock.now += 2_000
            hosted.log_waits()
    (item,) = hosted.inventory().units
    assert (item.waits_for, item.waited_ms) == ("members of group g to leave", 20_000)
    assert [line["waited_ms"] for line in logged] == [2_000, 12_000]
    assert logged[0]["waits_for"] == "members of group g to leave"
    hosted.waits_for(unit, None)
    assert hosted.inventory().units[0].waits_for is None
    work.may_end.set()


def test_a_failure_stays_in_the_inventory_until_it_is_cleared() -> None:
    """Its report may be lost; a stop of that generation clears it."""
    pipe, work = RecordingPipe(), BlockingWork(Fenced("fenced by a newer instance"))
    hosted = units(pipe)
    work.may_end.set()
    unit = start(hosted, 1, work)
    assert unit is not None
    assert pipe.has("FAILED of 1")
    hosted.report(unit, "RUNNING")  # from a thread of its work that is late
    (item,) = hosted.inventory().units
    assert (item.state, item.has_ended, item.code) == ("FAILED", True, "fenced")
    hosted.stop({"connector": "c", "generation": 1})
    assert hosted.inventory().units == ()
    assert (1, "RUNNING", False) not in pipe.reports


def test_a_unit_that_cannot_be_created_has_failed() -> None:
    """Its configuration is invalid: no thread starts."""
    pipe = RecordingPipe()
    hosted = units(pipe)

    def make(_: HostedUnit) -> BlockingWork:
        raise ConfigError("no", code="config")

    hosted.start({"connector": "c", "task": 3, "generation": 1, "layout": {"layout": 1}}, make)
    assert pipe.reports == [(1, "STARTING", False), (1, "FAILED", True)]
    assert hosted.current("c", 3) is None


@given(st.builds(UnitReport, waits_for=st.text()), st.builds(UnitReport, waited_ms=st.just(0)))
def test_a_report_is_read_as_it_was_sent(waiting: UnitReport, other: UnitReport) -> None:
    """Each field of a unit survives the pipe."""
    sent = Inventory(9, (waiting, other))
    assert Inventory.from_json(json.loads(json.dumps(sent.to_json()))) == sent
