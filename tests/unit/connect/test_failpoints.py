"""Failpoints: off, armed by text or by a file, and all of them in the code."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from connect import failpoints
from connect.errors import RetriableError

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def off_again() -> Iterator[None]:
    """Nothing is armed after a test."""
    yield
    failpoints.configure("")
    failpoints.arm_from(None)


def test_every_point_is_in_the_code_and_no_other() -> None:
    """The list and the code have the same points."""
    text = "".join(
        path.read_text("utf-8")
        for folder in ("worker", "coordinator", "connect")
        for path in (ROOT / folder).rglob("*.py")
    )
    hits = r"failpoints\.hit(?:_in_flight)?\(\"(\w+)\"\)|^    \"\w+\": \"(W\d+)\",$"
    named = re.findall(hits, text, re.MULTILINE)
    assert {direct or staged for direct, staged in named} == set(failpoints.NAMES)


def test_a_point_is_off_by_default() -> None:
    """Nothing happens at any of them."""
    for name in failpoints.NAMES:
        failpoints.hit(name)


def test_a_point_acts_on_the_chosen_hit_only() -> None:
    """``@2`` is the second hit."""
    failpoints.configure("W1=raise@2")
    failpoints.hit("W1")
    with pytest.raises(RetriableError):
        failpoints.hit("W1")
    failpoints.hit("W1")


def test_the_worker_hits_no_point_of_its_python_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """It processes few records itself; other processes hit the point."""
    failpoints.configure("W14=raise")
    monkeypatch.setenv(failpoints.WORKER_PID_VARIABLE, str(os.getpid()))
    failpoints.hit("W14")
    monkeypatch.setenv(failpoints.WORKER_PID_VARIABLE, str(os.getppid()))
    with pytest.raises(RetriableError):
        failpoints.hit("W14")


def test_a_file_arms_a_point_once(tmp_path: Path) -> None:
    """It is armed while the process runs, acts once and is gone; other points stay off."""
    failpoints.arm_from(tmp_path)
    failpoints.hit("C3")
    (tmp_path / "C3").write_text("raise\n")
    failpoints.hit("C4")
    with pytest.raises(RetriableError, match="C3"):
        failpoints.hit("C3")
    failpoints.hit("C3")
    assert not list(tmp_path.iterdir())


def test_a_point_in_flight_crashes_when_the_call_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller continues, the crash follows; any other action comes before the call."""
    crashed = threading.Event()
    monkeypatch.setattr(failpoints.os, "kill", lambda *_: crashed.set())
    monkeypatch.setattr(failpoints, "IN_FLIGHT_MS", 1)
    failpoints.hit_in_flight("W9")
    failpoints.arm_from(tmp_path)
    failpoints.hit_in_flight("W9")
    assert not crashed.is_set()
    (tmp_path / "W9").write_text("crash")
    failpoints.hit_in_flight("W9")
    assert crashed.wait(60)
    (tmp_path / "W9").write_text("raise")
    with pytest.raises(RetriableError, match="W9"):
        failpoints.hit_in_flight("W9")
    failpoints.arm_from(None)
    failpoints.configure("W9=raise@1")
    with pytest.raises(RetriableError, match="W9"):
        failpoints.hit_in_flight("W9")
    crashed.clear()
    failpoints.configure("C10=crash")
    failpoints.hit_in_flight("C10")
    assert crashed.wait(60)


@pytest.mark.parametrize("spec", ["X1=crash", "W1=explode"])
def test_unknown_points_and_actions_are_refused(spec: str) -> None:
    """A spec with a typing error would test nothing."""
    with pytest.raises(ValueError, match="unknown failpoint"):
        failpoints.configure(spec)
