"""The demo, smaller: the whole product once through."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from connect.embedded.demo import run_demo

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_the_demo_finds_every_record_once(tmp_path: Path) -> None:
    """Exit status 0."""
    assert "missing 0  twice 0" in demo(tmp_path, 20_000)


@pytest.mark.faults
def test_the_demo_can_continue(tmp_path: Path) -> None:
    """A second run with the folder checks the records of both."""
    demo(tmp_path, 1_000)
    reported = demo(tmp_path, 10_001)
    assert "10,001 in" in reported
    assert "committed 11,001/11,001" in reported


def demo(folder: Path, records: int) -> str:
    """Run the demo, which must succeed; return what it reports."""
    reported = io.StringIO()
    console = Console(file=reported, width=200)
    status = run_demo(records=records, state_dir=folder / "state", console=console)
    assert status == 0, reported.getvalue()
    return reported.getvalue()
