"""Runs the Arrow pipeline on each micro-batch, with the current state of the tables.

Rules of this file:
- A batch is complete only if it requests no change of a table. Otherwise the change is made, the
  files of the batch are deleted, and the batch runs again, a bounded number of times.
- Tables are loaded in the task's own thread where possible. Catalog clients are per thread, and
  each callback of a streaming query runs in a new thread.
- Two Spark tasks of a batch must not change one row: neither knows the newest change. Such a batch
  runs again in one Spark task, and so do the batches after it.
- Pipeline specs contain secrets of the object store and are never logged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame

from connect import failpoints
from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.errors import (
    IcefloeError,
    InvariantViolation,
    RecordError,
    RetriableError,
)
from connect.gateways.kafka.kafka_clients import ProducerMessage
from connect.model.layout import TopicPartition
from connect.records.custom_code import has_custom_code
from connect.records.dead_letter import message
from connect.records.record_path import ReferencePath
from control_schemas.events import FileContent
from worker.batch.descriptors import (
    DESCRIPTOR_SCHEMA,
    BatchResult,
    DeadLetter,
    SchemaRequest,
    TableRequest,
    collect,
)
from worker.batch.error_rows import NOT_WRITABLE, TYPE_CONFLICT
from worker.batch.few_records import BatchRows, FewRecords
from worker.batch.pipeline_spec import PipelineSpec, RecordPlace
from worker.pipeline.pipeline import run
from worker.spark.jvm import arrow_batches
from worker.spark.large_functions import deleted_with
from worker.spark.session import Session
from worker.sql.query_opening import open_query_catalog, opened_query
from worker.sql.sql_batches import SparkQuery, sql_plan
from worker.sql.sql_expressions import spark_failures
from worker.task.batches.failed_records import SPARK_ERRORS, FailedRecords
from worker.task.batches.row_distribution import RowDistribution
from worker.task.dead_letters.dead_letter_table import DeadLetterTable
from worker.task.dead_letters.record_errors import advised
from worker.task.read_ledger import OffsetRanges, WrittenBatch
from worker.task.source.source_blocks import SourceBlocks
from worker.task.source.source_rows import SourceRows
from worker.task.tables.task_tables import TaskTables
from worker.task.tables.topic_rows import BatchTables, TopicRows
from worker.task.task_context import TaskAssignment

RUNS_MAX = 10
_MERGED_BATCHES: Final = 50
"""Batches that one Spark task processes after two Spark tasks have changed a row."""
_MERGED_CHANGES_BYTES: Final = 2**30
"""Arrow bytes of changes kept for one step of such a batch: about a whole batch."""
_KEYS_SHARED: Final = "a key is in several source partitions of a batch, one Spark task repeats it"
_RESENT: Final = "Spark repeated a part of a batch whose rows were on their way, it runs again"

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class PipelineRunner:
    """The batch runner of one task; see ``worker.task.task_context.BatchRunner``.

    Args:
        config: the connector, placeholders resolved.
        tables: its tables; closed with the runner.
        dead_letter_table: where dead letters become rows; None if the connector has no tables.
        task: number of the task, for dead letters.
        query: the connector's ``Sql`` transformation, if it has one.
        distribution: distributes rows by table, if the connector is configured so.
        sources: source partitions of the task.
    """

    config: ConnectorConfig
    tables: BatchTables
    dead_letter_table: DeadLetterTable | None
    task: int = 0
    query: SparkQuery | None = None
    distribution: RowDistribution | None = None
    sources: tuple[TopicPartition, ...] = ()
    _merged_batches: int = field(default=0, init=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of Spark's Kafka source that the pipeline needs."""
        return self.tables.spec().columns()

    @property
    def takes_blocks(self) -> bool:
        """Whether the batches may be rows of blocks; a query takes rows of Spark's source."""
        return self.query is None

    @property
    def takes_few_records(self) -> bool:
        """Whether few records may be processed in this process: not with code of users."""
        return self.query is None and not has_custom_code(self.config)

    @property
    def is_primed(self) -> bool:
        """Whether the tables of the first records are likely to be known."""
        return self.tables.are_known

    @property
    def may_enlarge(self) -> bool:
        """Whether Spark may carry rows of unknown size."""
        return (self.query is not None and self.query.may_enlarge) or (
            self.distribution is not None and self.distribution.may_enlarge
        )

    def run(
        self,
        rows: BatchRows,
        ranges: OffsetRanges,
        valid_through_ms: int | None = None,
        *,
        is_small: bool = False,
    ) -> WrittenBatch:
        """Write the files of one micro-batch; args as ``BatchRunner.run``.

        Raises:
            RecordError: a record cannot be processed and no tolerance is configured.
            CommitRefused: a table is missing or may not be changed.
            RetriableError: Spark, the store, the catalog or a schema registry failed, or tables
                keep changing.
            ConfigError: a schema registry refuses access.
        """
        refused: set[str] = set()  # tables that were refused; reloaded once
        failed = FailedRecords(self.config.name)
        runs = 0
        changing: tuple[SchemaRequest | TableRequest, ...] = ()
        while runs < RUNS_MAX + 2 * len(refused) + failed.failures:
            runs += 1
            spec = self._spec(valid_through_ms, failed.refused)
            try:
                with contextlib.nullcontext() if self.query is None else spark_failures():
                    result = self._executed(rows, spec, ranges, is_small=is_small)
            except SPARK_ERRORS as failure:
                if self.query is not None:
                    raise
                if failed.must_search(failure):
                    for table, reason in failed.search(rows, spec, failure).items():
                        self.tables.mark_unusable(table, reason)
                continue
            failpoints.hit("W4")
            if result.is_usable and self._is_confirmed(result):
                self._merged_batches = max(self._merged_batches - 1, 0)
                return self._written(result, ranges)
            self.tables.discard(result)
            if result.error is not None:
                error = result.error
                if error.code in (NOT_WRITABLE, TYPE_CONFLICT) and self._may_repeat(error, refused):
                    continue
                if isinstance(error, RecordError):
                    error = advised(error)
                raise error.at(connector=self.config.name)
            self.tables.apply_requests(result)
            changing = (*result.schema_requests, *result.table_requests)
        raise _keeps_changing(self.config.name, changing)

    def dead_letter(self, dead_letter: DeadLetter) -> ProducerMessage | None:
        """Return the message for the dead letter topic; None when there is no topic."""
        return message(dead_letter.record, dead_letter.error, self.config, task_id=self.task)

    def refresh(self) -> None:
        """Load the tables, and those that a query joins, again when they are due."""
        self.tables.refresh()
        if self.query is not None:
            self.query.refresh()

    def close(self) -> None:
        """Close the connections to the catalog."""
        self.tables.close()

    def _executed(
        self,
        rows: BatchRows,
        spec: PipelineSpec,
        ranges: OffsetRanges,
        *,
        is_small: bool,
    ) -> BatchResult:
        """Process few records in the driver; else run the Spark tasks."""
        if isinstance(rows, FewRecords):
            result = processed_in_driver(rows, spec)
            if result is not None:
                return result
            rows = rows.as_rows()
        if spec.sources and not is_small and len(ranges.not_empty().ends) > 1:
            if self._merged_batches:
                limits = replace(spec.limits, changes_bytes_max=_MERGED_CHANGES_BYTES)
                spec = replace(spec, limits=limits)
                return collect(_descriptors(self._work(rows.coalesce(1), spec)))
            spec = replace(spec, reports_keys=True)
        if self.distribution is None:
            return collect(_descriptors(self._work(rows, spec)))
        work = partial(self._work, rows)
        return collect(self.distribution.descriptors(work, spec, ranges, is_small=is_small))

    def _spec(
        self, valid_through_ms: int | None, refused: Mapping[RecordPlace, str]
    ) -> PipelineSpec:
        return replace(
            self.tables.spec(),
            valid_through_ms=valid_through_ms,
            sources=self.sources if self.config.is_row_level and len(self.sources) > 1 else (),
            refused=refused,
        )

    def _work(self, rows: DataFrame, spec: PipelineSpec) -> DataFrame:
        """Return the descriptors of a batch; with a distribution, rows for other tasks too."""
        query = self.query
        if query is not None:
            return deleted_with(lambda: query.run(rows, spec))
        return deleted_with(lambda: rows.mapInArrow(run(spec), spec.descriptor_ddl))

    def _is_confirmed(self, result: BatchResult) -> bool:
        """Return whether all rows are in files, and the tables of a batch are as it knew them."""
        if result.shares_keys:
            self._merged_batches = _MERGED_BATCHES
        if result.shares_keys or not result.is_whole:
            log.info(_KEYS_SHARED if result.shares_keys else _RESENT, connector=self.config.name)
            return False
        try:
            is_confirmed = self.tables.confirm(result.files)
        except IcefloeError:
            self.tables.discard(result)
            raise
        if not is_confirmed:
            log.info("tables have changed, the batch runs again", connector=self.config.name)
        return is_confirmed

    def _written(self, result: BatchResult, ranges: OffsetRanges) -> WrittenBatch:
        _check_rows(result, self.config)
        if self.distribution is not None:
            self.distribution.shares.add(result.files)
        steps = [
            tuple((self.tables.reference(name), files) for name, files in step.items())
            for step in result.steps
        ]
        letters = self.dead_letter_table
        refused = letters.write(result.dead_letters) if letters is not None else ()
        if refused:  # added to the last step: there must not be more steps than records
            steps[-1:] = [(*(steps[-1] if steps else ()), *refused)]
        return WrittenBatch(
            ranges,
            result.progress,
            tuple(steps),
            result.dead_letters,
            result.rows,
            result.messages,
            result.losses,
            result.unavailable,
            result.conflicts,
        )

    def _may_repeat(self, error: IcefloeError, refused: set[str]) -> bool:
        """Reload a table after a refusal: credentials may have ended, or a column was changed.

        At the second refusal the table becomes unusable, if the configuration allows that.
        """
        table = str(error.coordinates["table"])
        if table not in refused:
            refused.add(table)
            log.info(
                "table refused, it is loaded again",
                connector=self.config.name,
                table=table,
                error=error.message,
            )
            self.tables.reload(table)
            return True
        if self.config.sends_refused_to_dead_letters:
            self.tables.mark_unusable(table, error)
            return True
        return False


def _check_rows(result: BatchResult, config: ConnectorConfig) -> None:
    """Check that every written record made a row, and that the files contain all kept rows."""
    written = sum(progress.written for progress in result.progress.values())
    rows = sum(
        file.record_count
        for files in result.files.values()
        for file in files
        if file.content is FileContent.DATA
    )
    kept = result.rows.kept if config.has_tables else 0
    if result.rows.made < written or rows != kept:
        counts = result.rows
        raise InvariantViolation(
            f"{written} records were counted as written and made {counts.made} rows. The data "
            f"files contain {rows} rows, {counts.superseded} were replaced by newer rows, and "
            f"{counts.deleted} only delete",
            code="records_unaccounted",
            connector=config.name,
        )


def _keeps_changing(
    connector: str, changing: Sequence[SchemaRequest | TableRequest]
) -> RetriableError:
    return RetriableError(
        f"one batch still requested changes of tables after {RUNS_MAX} runs",
        code="tables_keep_changing",
        connector=connector,
        table=next((request.table for request in changing), None),
    )


def processed_in_driver(few: FewRecords, spec: PipelineSpec) -> BatchResult | None:
    """Process records in this process; return None where Spark must repeat the work.

    An error that a Spark task would report is in the result. Spark repeats tasks after all others,
    and the errors that remain are mapped.
    """
    try:
        return collect(pa.Table.from_batches(run(spec)(iter(few.batches))))
    except Exception as error:  # as a Spark task would, and Spark repeats the task
        log.warning(
            "few records not processed, a Spark job repeats the work",
            connector=spec.config.name,
            error=type(error).__name__,
        )
        return None


def _descriptors(work: DataFrame) -> pa.Table:
    """Run a batch and return its descriptors.

    ``toArrow`` does the same, and asks the JVM for the schema and settings of each result.
    """
    batches = arrow_batches(work)
    return pa.Table.from_batches(batches) if batches else DESCRIPTOR_SCHEMA.empty_table()


def make_runner(
    config: ConnectorConfig, assignment: TaskAssignment, session: Callable[[], Session]
) -> PipelineRunner:
    """Return the runner of a task, with a separate catalog client.

    Args:
        config: the connector, placeholders resolved.
        assignment: the task.
        session: waits for the worker's Spark session; only a ``Sql`` transformation and the
            distribution of rows call it.

    Raises:
        ConfigError: an option of a converter or transformation is invalid; as ``open_catalog``.
        CommitRefused, RetriableError: as ``open_catalog``, and as ``session``.
    """
    ReferencePath(config)  # an error of an executor would be reported as a failure of Spark
    clock, plan = SystemClock(), sql_plan(config)
    if plan is None and not config.has_tables:
        return PipelineRunner(config, TopicRows(config), None, assignment.task)
    catalog = open_query_catalog(config, plan)
    try:
        query = None
        if plan is not None:
            query = opened_query(config, plan, catalog, session().spark)
        if not config.has_tables:
            rows = TopicRows(config, catalog)
            return PipelineRunner(config, rows, None, assignment.task, query)
    except BaseException:
        catalog.close()
        raise
    tables = TaskTables(config, catalog, clock)
    dead_letter_table = DeadLetterTable(config, catalog, clock, assignment.task)
    distribution = (
        RowDistribution(
            session, config.is_row_level, source=SourceBlocks if plan is None else SourceRows
        )
        if config.distributes_rows
        else None
    )
    sources = assignment.partitions
    return PipelineRunner(
        config, tables, dead_letter_table, assignment.task, query, distribution, sources
    )
