"""Our REST API against the recordings of a real Kafka Connect worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import connect_rest_suite as suite


@pytest.mark.parametrize("group", suite.GROUPS)
def test_group(group: str) -> None:
    """Every recorded answer is ours, or differs by a written rule."""
    results = suite.replay(group)
    assert results
    assert [f"{r.case}\n{r.detail}" for r in results if r.verdict == "failing"] == []
    assert any(r.verdict == "agreed" for r in results)


def test_odd_configurations() -> None:
    """Two hundred configurations, each odd at one key, as the same version of Kafka judged them."""
    recorded = Path(__file__).with_name("connect_rest_more")
    results = suite.replay("validate", recorded=recorded)
    assert len(results) > 200
    assert [f"{r.case}\n{r.detail}" for r in results if r.verdict == "failing"] == []
