"""Our REST API against the recordings of a real Kafka Connect worker."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from tests.golden import connect_rest_suite as suite


@pytest.mark.parametrize("group", suite.GROUPS)
def test_every_recorded_answer_is_met(group: str) -> None:
    """The answer is equal, or differs by a written rule."""
    results = suite.replay(group)
    assert results
    assert [f"{r.case}\n{r.detail}" for r in results if r.verdict == "failing"] == []
    assert any(r.verdict == "agreed" for r in results)


MORE = suite.recordings_beyond()


@functools.cache
def _further(group: str) -> list[suite.Result]:
    """The results of a group of further recordings."""
    return suite.replay(group, recorded=suite.MORE)


@pytest.mark.parametrize("group", MORE)
def test_every_further_recorded_answer_is_met(group: str) -> None:
    """Kafka's answers to unusual configurations, loggers and refused changes."""
    results = _further(group)
    assert results
    assert [f"{r.case}\n{r.detail}" for r in results if r.verdict == "failing"] == []


def test_the_further_recordings_exist() -> None:
    """Two hundred configurations are unusual at one key each."""
    assert len(_further("validate")) > 200
    assert {"loggers", "offsets", "validate"} <= set(MORE)


def test_a_consumer_may_leave_without_the_name_of_its_group(tmp_path: Path) -> None:
    """A recording may end the only foreign consumer without naming its group."""
    joined = {"what": "join_group", "group": "connect-a", "topic": "t"}
    steps = [{"scenario": "s", "do": do} for do in (joined, {"what": "leave_group"})]
    (tmp_path / "offsets.json").write_text(json.dumps(steps))
    assert suite.replay("offsets", recorded=tmp_path) == []
