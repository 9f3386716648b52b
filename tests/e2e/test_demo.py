"""The demo, smaller: the whole product once through."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from connect.embedded.demo import run_demo

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_the_demo_finds_every_record_once_and_can_continue(tmp_path: Path) -> None:
    """Exit status 0; a second run with the folder checks the records of both."""
    reported = io.StringIO()
    console = Console(file=reported, width=200)
    assert run_demo(records=20_000, state_dir=tmp_path / "state", console=console) == 0, (
        reported.getvalue()
    )
    assert "missing 0  twice 0" in reported.getvalue()
    assert run_demo(records=10_001, state_dir=tmp_path / "state", console=console) == 0, (
        reported.getvalue()
    )
    assert "10,001 in" in reported.getvalue()
    assert "committed 30,001/30,001" in reported.getvalue()
