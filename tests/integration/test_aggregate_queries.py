"""Aggregates of the rows of a ``Sql`` query, against a real broker and Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connect.errors import ConfigError
from connect.model.layout import TopicPartition
from tests.support.aggregate_harness import Aggregates
from tests.support.reading import committed_records
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import Topics
from tests.support.task_harness import opened, wait_until
from tests.support.window_results import check_each_update_once, event
from worker.spark.session import Session

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]
QUERY = (
    "SELECT CAST(r.at AS TIMESTAMP) AS ts, p.room AS device, CAST(r.cents AS INT) * 2 AS amount, "
    "r.user FROM records r JOIN rooms p ON p.camera = lower(r.camera) "
    "WHERE r.camera RLIKE '^CAM-[0-9]+$'"
)


class Rooms:
    """A static table of Parquet files: the rooms of cameras."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "rooms"
        self.folder.mkdir()
        self.of: dict[str, str] = {}

    def write(self, **of: str) -> None:
        """Replace the table."""
        self.of = {name.replace("_", "-"): room for name, room in of.items()}
        rows = pa.table({"camera": list(self.of), "room": list(self.of.values())})
        # a reader of the folder ignores the name until the file is complete
        pq.write_table(rows, self.folder / "_rooms")
        (self.folder / "_rooms").rename(self.folder / "rooms.parquet")


@pytest.fixture
def rooms(tmp_path: Path) -> Rooms:
    """A table with two cameras."""
    made = Rooms(tmp_path)
    made.write(cam_0="hall", cam_1="yard")
    return made


@pytest.fixture
def aggregates(
    spark_session: Session,
    kafka_properties: dict[str, str],
    topics: Topics,
    tmp_path: Path,
    rooms: Rooms,
) -> Aggregates:
    """Aggregates of the query, with their state in a local folder."""
    config = {
        "icefloe.aggregate.location": str(tmp_path / "state"),
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": topics.create("letters"),
        "errors.deadletterqueue.max-ratio": "1",
        "transforms": "q",
        "transforms.q.type": "icefloe.transforms.Sql",
        "transforms.q.columns": "at STRING, camera STRING, cents STRING, user STRING",
        "transforms.q.query": QUERY,
        "transforms.q.table.rooms": str(rooms.folder),
        "transforms.q.tables.refresh.ms": "100",
    }
    return Aggregates(opened(spark_session), kafka_properties, topics, config)


def produce(aggregates: Aggregates, rooms: Rooms, first: int) -> None:
    """Send records that become rows, one that WHERE drops and others without a room."""
    numbers = range(first, first + 6)
    rows = [event(n, rooms.of[f"cam-{n % 2}"], 2 * n, f"u{n % 3}") for n in numbers]
    records: list[dict[str, Any]] = [
        {"at": row["ts"], "camera": f"CAM-{n % 2}", "cents": str(n), "user": row["user"]}
        for n, row in zip(numbers, rows, strict=True)
    ]
    # the last one is no text, so that the record path reads it
    others = [{**records[0], "camera": camera} for camera in ("CAM-x", "CAM-7", 7)]
    aggregates.produce(*records, *others, rows=rows)


@pytest.mark.matrix  # ``tests/e2e/test_aggregates.py`` has such a query
def test_filter_computed_columns_and_a_table_that_changes(
    aggregates: Aggregates, rooms: Rooms
) -> None:
    """Event time and key are computed. A failed cast is a dead letter. A run reads a new table."""
    ended: list[BaseException | None] = []
    with aggregates.running(ended):
        produce(aggregates, rooms, 0)
        wait_until(aggregates.are_complete)
        starts = aggregates.starts
        rooms.write(cam_0="attic", cam_1="yard")
        wait_until(lambda: aggregates.starts > starts)
        bad = {"at": "2026-11-24T12:00:00Z", "camera": "CAM-0", "cents": "many", "user": "u"}
        aggregates.produce(bad, {**bad, "cents": "1", "at": "noon"}, rows=())
        produce(aggregates, rooms, 3)
        wait_until(aggregates.are_complete)
    assert ended == []
    check_each_update_once(aggregates.updates())
    assert {key[0] for key in aggregates.updates()} == {"hall", "yard", "attic"}
    letters = aggregates.config["errors.deadletterqueue.topic.name"]
    assert len(committed_records(aggregates.kafka, TopicPartition(letters, 0))) == 2


def test_a_query_without_a_column_of_the_aggregates_stops_at_the_start(
    aggregates: Aggregates,
) -> None:
    """Where only Spark knows the names of columns, the task reports it."""
    aggregates.config["transforms.q.query"] = QUERY.replace("p.room AS device", "upper(p.room)")
    with pytest.raises(ConfigError, match=r"has no column device.*AS device"):
        aggregates.task([]).run()
