"""A task with three tables, one of which cannot be written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.errors import PySparkException

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.catalog import CatalogGateway
from connect.gateways.catalog.catalog_errors import request_error
from connect.model.layout import TopicPartition
from tests.differential.support import config, source
from worker.task.batches.batch_runner import PipelineRunner
from worker.task.dead_letters.dead_letter_table import DeadLetterTable
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.tables.task_tables import TaskTables

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
)


NAMES = ("db.bad", "db.good1", "db.good2")


AT = TopicPartition("t", 0)


TOLERANT = {"errors.tolerance": "all"}


LETTERS = {**TOLERANT, "iceberg.tables.refused": "dead-letter"}


class OneTableRefused(CatalogGateway):
    """A catalog that answers 403 for one table."""

    refused: str | None = None

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Load, or refuse."""
        if ".".join(identifier) == self.refused:
            raise request_error(ForbiddenError("no grant"))
        return super().load(identifier, with_history=with_history)


class ShiftedClock(SystemClock):
    """A clock that a test moves."""

    skipped_ms = 0

    def monotonic_ms(self) -> int:
        """The machine's, and what was skipped."""
        return super().monotonic_ms() + self.skipped_ms


@dataclass(frozen=True)
class Rows:
    """A DataFrame as far as the runner uses one."""

    batch: pa.RecordBatch
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None

    def mapInArrow(self, work: Any, ddl: str) -> Rows:  # noqa: N802 - Spark's name
        """Remember what is to be done."""
        del ddl
        return Rows(self.batch, work)

    def _collect_as_arrow(self) -> list[pa.RecordBatch]:
        """Do it."""
        assert self.work is not None
        return list(self.work(iter([self.batch])))


class SparkRows(Rows):
    """Rows whose work raises what Spark raises for an exception of a Python worker."""

    def mapInArrow(self, work: Any, ddl: str) -> SparkRows:  # noqa: N802 - Spark's name
        """Remember what is to be done."""
        del ddl
        return SparkRows(self.batch, work)

    def _collect_as_arrow(self) -> list[pa.RecordBatch]:
        try:
            return super()._collect_as_arrow()
        except Exception as error:
            text = f"Traceback (most recent call last):\n{type(error).__name__}: {error}\n"
            raise PySparkException(text) from error


@dataclass
class Task:
    """A runner over a catalog."""

    catalog: OneTableRefused
    config: ConnectorConfig
    clock: ShiftedClock = field(default_factory=ShiftedClock)

    def __post_init__(self) -> None:
        self.tables = TaskTables(self.config, self.catalog, self.clock)
        dead_letters = DeadLetterTable(self.config, self.catalog, self.clock, 0)
        self.runner = PipelineRunner(self.config, self.tables, dead_letters)

    def run(self, *kinds: str, values: Sequence[bytes | None] | None = None) -> WrittenBatch:
        """Write a record for each kind."""
        values = values or [json.dumps({"id": i, "kind": k}).encode() for i, k in enumerate(kinds)]
        keys = [b"%d" % i for i in range(len(values))]
        part = OffsetRanges({AT: 0}, {AT: len(values)})
        self.runner.refresh()
        batch = source(values, keys=keys).select(list(self.runner.columns))
        return self.runner.run(Rows(batch), part)  # type: ignore[arg-type]


def rows_of(batch: WrittenBatch) -> dict[str, int]:
    """Rows by table."""
    return {
        reference.name: sum(file.record_count for file in files)
        for step in batch.steps
        for reference, files in step
    }


def named(**more: str | None) -> ConnectorConfig:
    """All three tables are named; records choose theirs by the field ``kind``."""
    routes = {f"iceberg.table.{n}.route-regex": n.removeprefix("db.") for n in NAMES}
    given = {"iceberg.tables": ",".join(NAMES), "iceberg.tables.route-field": "kind"}
    return config(**{**given, **routes, **more})
