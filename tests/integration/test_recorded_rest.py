"""The recordings of a Kafka Connect worker, replayed on a whole node with a broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.golden import connect_rest_suite as suite
from tests.golden.connect_rest_targets import NodeTarget

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def node(
    kafka_properties: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeTarget]:
    """One node for all groups; each leaves no connector behind."""
    folder = tmp_path_factory.mktemp("recorded")
    with NodeTarget(kafka_properties["bootstrap.servers"], folder) as target:
        yield target


@pytest.mark.parametrize("group", [g for g in suite.GROUPS if g != "second-worker"])
def test_every_recorded_answer_is_met(node: NodeTarget, group: str) -> None:
    """The node gives the recorded answer, or differs by a written rule."""
    _agrees(suite.replay(group, node))


@pytest.mark.parametrize("group", suite.recordings_beyond())
def test_every_further_recorded_answer_is_met(node: NodeTarget, group: str) -> None:
    """Loggers, placeholders and refused changes of offsets on a real node."""
    _agrees(suite.replay(group, node, recorded=suite.MORE))


def test_answers_of_a_second_worker_are_met(
    kafka_properties: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the settings of the recorded second worker."""
    folder = tmp_path_factory.mktemp("second")
    servers = kafka_properties["bootstrap.servers"]
    with NodeTarget(servers, folder, is_second=True) as target:
        _agrees(suite.replay("second-worker", target))


def _agrees(results: list[suite.Result]) -> None:
    assert results
    assert [f"{r.case}\n{r.detail}" for r in results if r.verdict == "failing"] == []
    assert any(r.verdict == "agreed" for r in results)
