"""What batches and queries leave in Spark, which runs for months: nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.spark_marks import SPARK_MARKS
from worker.spark.large_functions import deleted_with
from worker.spark.session import Session

pytestmark = [*SPARK_MARKS]
LARGE_BYTES = 2 * 2**20


def files(session: Session) -> set[Path]:
    """Return the files of functions that PySpark has sent."""
    return set(Path(str(session.context._temp_dir)).iterdir())


def test_a_large_function_is_deleted_with_its_rows(spark_session: Session) -> None:
    """The tables of a connector are in the function of each of its batches."""
    tables = secrets.token_bytes(LARGE_BYTES)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"n": pa.array([len(tables)] * batch.num_rows)})

    before = files(spark_session)
    numbers = spark_session.spark.range(2)
    for _ in range(3):
        rows: Any = deleted_with(lambda: numbers.mapInArrow(count, "n long"))
        assert files(spark_session) > before
        assert [row.n for row in rows.collect()] == [LARGE_BYTES] * 2
    del rows
    assert files(spark_session) == before
