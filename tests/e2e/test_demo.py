"""The demo, smaller: the whole product once through."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from connect.embedded import demo
from connect.embedded.stack import Stack
from tests.support.running_stack import RunningStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


class SharedStack:
    """The shared stack in place of one that the demo starts and stops.

    Args:
        stack: started.
    """

    def __init__(self, stack: Stack) -> None:
        self._stack = stack

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stack, name)

    def start_broker(self) -> None:
        """It runs."""

    def start_node(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """Other tests need it."""


def test_the_demo_finds_every_record_once(running: RunningStack) -> None:
    """Exit status 0. ``make demo`` has a stack of its own, which takes long to start."""
    reported = io.StringIO()
    console = Console(file=reported, width=200)
    stack = SharedStack(running.stack)
    status = demo.Demo(stack, 20_000, console, threading.Event()).run()  # type: ignore[arg-type]
    assert status == 0, reported.getvalue()
    assert "missing 0  twice 0" in reported.getvalue()
    running.delete(demo.demo_connector()["name"])


@pytest.mark.matrix
def test_the_demo_has_a_stack_of_its_own(tmp_path: Path) -> None:
    """It starts it, and stops it."""
    assert "missing 0  twice 0" in run(tmp_path, 20_000)


@pytest.mark.faults
def test_the_demo_can_continue(tmp_path: Path) -> None:
    """A second run with the folder checks the records of both."""
    run(tmp_path, 1_000)
    reported = run(tmp_path, 10_001)
    assert "10,001 in" in reported
    assert "committed 11,001/11,001" in reported


def run(folder: Path, records: int) -> str:
    """Run the demo, which must succeed; return what it reports."""
    reported = io.StringIO()
    console = Console(file=reported, width=200)
    status = demo.run_demo(records=records, state_dir=folder / "state", console=console)
    assert status == 0, reported.getvalue()
    return reported.getvalue()
