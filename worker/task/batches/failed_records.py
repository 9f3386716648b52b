"""Records whose exceptions stop a batch: found after two equal failures, then refused.

Rules of this file:
- The first failure of a batch repeats it. The second one, if equal, starts a search for records.
- Each search finds at least one record, and a batch has a bounded number of them. If there are more
  and they are of one table, no row can be written to the table. Otherwise the batch fails with its
  exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from connect.errors import RetriableError
from connect.redaction.foreign_text import are_hidden
from worker.batch.descriptors import DESCRIPTOR_DDL
from worker.batch.few_records import BatchRows, FewRecords
from worker.batch.pipeline_spec import PipelineSpec, RecordPlace
from worker.pipeline.record_search import FAILED_RECORDS_MAX, failures_of, search
from worker.spark.jvm import arrow_batches
from worker.spark.large_functions import deleted_with
from worker.spark.source_options import BATCH_FAILED, map_spark_error

SPARK_ERRORS = (PySparkException, Py4JError)
_TRACE = "Traceback (most recent call last)"

log = structlog.get_logger("worker.task")


@dataclass(slots=True)
class FailedRecords:
    """The records of one batch that cannot be processed.

    Attributes:
        connector: for the log.
        refused: the exception of each record.
        failures: of the batch so far.
    """

    connector: str
    refused: dict[RecordPlace, str] = field(default_factory=dict)
    failures: int = 0
    _reason: str | None = None

    def must_search(self, error: BaseException) -> bool:
        """Return whether to search for records; otherwise the batch runs again.

        Raises:
            PySparkException, Py4JError: the error, if it is not of Python code, or if the batch has
                failed in another way before.
        """
        mapped = map_spark_error(error)
        reason = mapped.message.split(": ")[1:2]
        if mapped.code != BATCH_FAILED or _TRACE not in str(error) or not reason:
            raise error
        self.failures += 1
        is_repeated = self._reason is not None
        if is_repeated and self._reason != reason[0]:
            raise error
        self._reason = None if is_repeated else reason[0]
        event = "batch failed again, its records are searched" if is_repeated else "batch repeated"
        log.warning(event, connector=self.connector, error=reason[0])
        return is_repeated

    def search(
        self, rows: BatchRows, spec: PipelineSpec, error: BaseException
    ) -> Mapping[str, RetriableError]:
        """Search a batch, and refuse the records that fail.

        Args:
            rows: the batch.
            spec: with which it failed.
            error: of the batch.

        Returns:
            Tables to which no row can be written, with their errors.

        Raises:
            RetriableError: ``too_many_failed_records``.
            PySparkException, Py4JError: the batch's error, if the search found nothing.
        """
        frame = rows.as_rows() if isinstance(rows, FewRecords) else rows
        work = deleted_with(lambda: frame.mapInArrow(search(spec), DESCRIPTOR_DDL))
        failures, tables = failures_of(arrow_batches(work))
        if tables:
            return {
                name: RetriableError(
                    f"no record of the table can be processed: {self._shown(text)}",
                    code="table_failed",
                )
                for name, text in tables.items()
            }
        new = {at: text for at, text in failures.items() if at not in self.refused}
        if not new:
            raise error
        for at, text in new.items():
            self.refused[at] = self._shown(text)
        (topic, partition, offset), text = next(iter(new.items()))
        if len(self.refused) > FAILED_RECORDS_MAX:
            raise RetriableError(
                f"more than {FAILED_RECORDS_MAX} records of a batch cannot be processed: "
                f"{self.refused[topic, partition, offset]}",
                code="too_many_failed_records",
                topic=topic,
                partition=partition,
                offset=offset,
                connector=self.connector,
            ) from error
        return {}

    @staticmethod
    def _shown(text: str) -> str:
        """Return the text of an exception, or its class where texts may have record content."""
        return text.partition(":")[0] if are_hidden() else text
