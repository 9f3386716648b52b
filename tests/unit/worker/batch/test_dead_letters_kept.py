"""The dead letters of a Spark task and of a worker are bounded in bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.errors import RecordError, RetriableError
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from tests.differential.support import config, plan, run_batches, source
from worker.batch.descriptors import BatchResult, DeadLetter, PartitionProgress
from worker.batch.error_rows import DEAD_LETTERS_FULL
from worker.batch.pipeline_spec import PipelineLimits
from worker.task.read_ledger import OffsetRanges, ReadLedger, WrittenBatch

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))
TP = TopicPartition("t", 0)


def run(folder: Path, *sizes: int, key: bytes | None = None) -> BatchResult:
    """Run a good record and bad ones of these sizes, with a limit of 10,000 bytes."""
    values: list[bytes | None] = [b'{"id":1}', *(b"x" * size for size in sizes)]
    connector = config(**{"errors.tolerance": "all"})
    given: dict[str, Any] = {"keys": [key] * len(values)}
    return run_batches(
        connector,
        [plan(folder, SCHEMA)],
        [source(values, **given)],
        limits=PipelineLimits(dead_letter_bytes_max=10_000),
    )


@pytest.mark.parametrize(("sizes", "key"), [((5_000, 5_000), None), ((10, 10), b"k" * 4_500)])
def test_more_dead_letters_than_can_be_kept_end_the_batch(
    tmp_path: Path, sizes: tuple[int, ...], key: bytes | None
) -> None:
    """The driver receives an error, and all written files are deleted."""
    result = run(tmp_path, *sizes, key=key)
    assert isinstance(result.error, RetriableError)
    assert result.error.code == DEAD_LETTERS_FULL
    assert not result.files
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("sizes", [(3_000, 3_000), (50_000,)])
def test_dead_letters_within_the_limit_are_kept(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """A single record of any size is kept: no batch is smaller."""
    result = run(tmp_path, *sizes)
    assert result.is_usable
    assert [len(letter.record.value or b"") for letter in result.dead_letters] == list(sizes)


def test_bytes_of_records_are_counted(tmp_path: Path) -> None:
    """Keys and values, of every record."""
    result = run(tmp_path, 1_000, 2_000, key=b"four")
    assert result.progress[TP].bytes_read == 8 + 1_000 + 2_000 + 3 * 4


def test_bytes_of_pending_dead_letters_are_counted() -> None:
    """Those of all pending batches, until they are announced."""
    ledger = ReadLedger({TP: 0}, out_of_order_ms=0, idle_lag_ms=0)
    headers = (("h", b"12345"), ("none", None))
    record = KafkaRecord("t", 0, 0, 5, 0, b"key", b"x" * 7_000, headers)
    letter = DeadLetter(record, RecordError("bad", code="bad"))
    for at in range(2):
        part = OffsetRanges({TP: at}, {TP: at + 1})
        ledger.add(WrittenBatch(part, {TP: PartitionProgress(1, 0, 1, 0)}, (), (letter,)))
    assert 14_000 + 2 * 13 < ledger.dead_letter_bytes < 20_000
    ledger.announced(ledger.answer())
    assert ledger.dead_letter_bytes == 0
