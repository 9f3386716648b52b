"""A task's dead letters are bounded in bytes, in one batch and while they wait for a round."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connect.errors import RetriableError
from connect.gateways.kafka_admin import KafkaAdmin
from tests.stack import Topics
from tests.task_rig import Rig, paths
from worker.session import Session
from worker.told_errors import LETTERS_FULL

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    # pyspark leaves the socket of a collected result to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def rig(spark_session: Session, kafka_properties: dict[str, str], topics: Topics) -> Iterator[Rig]:
    """One partition."""
    source, control = topics.create("source"), topics.create("control")
    made = Rig(spark_session, kafka_properties, source, control, 1)
    KafkaAdmin(kafka_properties).ensure_topic("dead", 1, replication_factor=1)
    yield made
    made.reader.close()
    made.admin.close()


def test_a_batch_that_holds_too_much_is_read_in_smaller_ones(rig: Rig) -> None:
    """Its dead letters do not fit: the task goes on without starting over."""
    rig.runner.error = RetriableError("more than can be kept", code=LETTERS_FULL)
    rig.overrides["iceberg.control.commit.interval-ms"] = "600000"  # one answer for all of it
    rig.overrides["iceberg.control.commit.timeout-ms"] = "600000"
    rig.feed(800)
    with rig.running() as task:
        _, answer = rig.round()
        assert paths(answer) == [f"0:{n}-{n + 99}" for n in range(0, 800, 100)]
        assert task.figures.retries == 0


def test_many_bytes_of_dead_letters_do_not_wait_for_a_round(rig: Rig) -> None:
    """They go out under an id that no round has; the next round is answered as usual."""
    rig.overrides["icefloe.drain.records"] = "2"
    rig.runner.letters, rig.runner.letter = 2, b"x" * 2**25
    with rig.running():
        rig.feed(2)
        assert paths(rig.answer(None)) == ["0:0-1"]
        assert rig.committed()[0] == 2
        rig.runner.letters = 0
        rig.feed(1)
        _, answer = rig.round()
        assert paths(answer) == ["0:2-2"]
