"""One run of the maintenance process: the jobs that the node sent, for one connector.

Rules of this file:
- A job is a table with its work, in order. Several tables are maintained at the same time, each by
  a thread of its own; the work on a table is done one after the other.
- A failure is reported. Other work on the table, and other tables, continue: a table whose files
  are always in conflict still gets its orphan files removed.
- Every table is loaded first by the same client as the coordinator's, which refuses locations that
  the operator does not grant.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from py4j.protocol import Py4JError, Py4JJavaError
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark.errors import PySparkException

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import IcefloeError
from connect.gateways.catalog.catalog import open_catalog
from connect.jvm.jars import resolve
from connect.redaction.secret_values import KNOWN
from worker.maintenance.java_catalog import JavaCatalog, store_jars
from worker.maintenance.table_actions import TableActions, WorkResult
from worker.spark.session import Session, open_session

ICEBERG_JARS: Final = "iceberg-spark"
CLASS_PATH_END: Final = "SPARK_DIST_CLASSPATH"  # Spark's variable of a process that starts a JVM
_BEFORE_SPARK: Final = frozenset({"iceberg-gcp"})  # with libraries of Spark in other versions
MESSAGE_CHARACTERS_MAX: Final = 500
FAILED: Final = "maintenance_failed"
CONFLICT: Final = "maintenance_conflict"
CAUSES_MAX: Final = 5
_CONFLICTS: Final = ("CommitFailedException", "ValidationException")

log = structlog.get_logger("maintenance")

Report = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class TableJob:
    """A table and the work on it.

    Attributes:
        table: its name.
        work: in order.
        bytes_max: of data files to rewrite, approximately.
        older_than_ms: orphan files that were changed before that time (epoch) may be deleted.
    """

    table: str
    work: tuple[str, ...]
    bytes_max: int
    older_than_ms: int | None

    @classmethod
    def of(cls, job: Mapping[str, Any]) -> TableJob:
        """Read a job of the node's command."""
        return cls(job["table"], tuple(job["work"]), job["bytes_max"], job["older_than_ms"])


class MaintenanceRun:
    """The jobs of one command.

    Args:
        config: the connector, placeholders resolved.
        jobs: one per table.
        tables_at_once: tables that are maintained at the same time.
        heap_mb: heap of the JVM.
        folder: for temporary files.
        clock: time.
        report: called with each report for the node; from any thread.
    """

    def __init__(
        self,
        config: ConnectorConfig,
        jobs: Sequence[TableJob],
        *,
        tables_at_once: int,
        heap_mb: int,
        folder: Path,
        clock: Clock,
        report: Report,
    ) -> None:
        self._config = config
        self._jobs = jobs
        self._tables_at_once = tables_at_once
        self._heap_mb = heap_mb
        self._folder = folder
        self._clock = clock
        self._report = report
        self._stopping = threading.Event()
        self._session: Session | None = None

    def run(self) -> None:
        """Do all jobs; every failure is reported."""
        jobs = self._accepted()
        if jobs and not self._stopping.is_set():
            try:
                catalog = self._catalog()
                groups = [*catalog.jar_groups, *(g for _, groups in jobs for g in groups)]
                self._session = session = self._opened(sorted(set(groups)))
            except IcefloeError as error:
                for job, _ in jobs:
                    self._refused(job, error)
            else:
                with ThreadPoolExecutor(self._tables_at_once) as threads:
                    list(threads.map(lambda accepted: self._maintain(catalog, accepted[0]), jobs))
                self._session = None
                session.close()

    def stop(self) -> None:
        """Cancel what Spark does now and begin no further work; may be called from any thread."""
        self._stopping.set()
        session = self._session
        if session is not None:
            try:
                session.spark.sparkContext.cancelAllJobs()
            except Py4JError as error:
                log.info("Spark jobs could not be cancelled", error=str(error))

    def _catalog(self) -> JavaCatalog:
        return JavaCatalog.of(self._config.catalog_name, self._config.catalog_properties)

    def _accepted(self) -> list[tuple[TableJob, tuple[str, ...]]]:
        """Return the jobs whose tables may be maintained, and the jars that these need."""
        accepted = []
        config = self._config
        try:
            self._catalog()
            gateway = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
        except IcefloeError as error:
            for job in self._jobs:
                self._refused(job, error)
            return []
        try:
            for job in self._jobs:
                try:
                    table = gateway.load(config.table(job.table).identifier)
                    accepted.append((job, store_jars(table.location())))
                except IcefloeError as error:
                    self._refused(job, error)
        finally:
            gateway.close()
        return accepted

    def _opened(self, groups: Sequence[str]) -> Session:
        before, after = _class_path((ICEBERG_JARS, *groups))
        settings = {
            "spark.app.name": "icefloe-maintenance",
            "spark.driver.memory": f"{self._heap_mb}m",
            **({"spark.driver.extraClassPath": before} if before else {}),
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        os.environ[CLASS_PATH_END] = after
        return open_session(settings, folder=self._folder, java_options=() if before else None)

    def _maintain(self, catalog: JavaCatalog, job: TableJob) -> None:
        left_bytes = job.bytes_max
        for work in job.work:
            if self._stopping.is_set():
                return
            started_ms = self._clock.monotonic_ms()
            self._report({"table": job.table, "work": work, "state": "RUNNING"})
            log.info("maintenance begins", connector=self._config.name, table=job.table, work=work)
            try:
                result = self._do(catalog, job, work, left_bytes)
            except Py4JJavaError as error:
                code, text = _explained(error)
                self._failed(job.table, work, code, text, started_ms)
                continue
            except (Py4JError, PySparkException) as error:
                self._failed(job.table, work, FAILED, str(error), started_ms)
                continue
            left_bytes = max(0, left_bytes - result.rewritten_bytes)
            if result.lost_commits and not result.rewritten_files:
                text = "other commits changed the data files meanwhile; see maintenance.log"
                self._failed(job.table, work, CONFLICT, text, started_ms)
                continue
            if result.failed_files and not result.rewritten_files:
                text = f"{result.failed_files} data files were not rewritten; see maintenance.log"
                self._failed(job.table, work, FAILED, text, started_ms)
                continue
            self._done(job.table, work, result, started_ms)

    def _do(self, catalog: JavaCatalog, job: TableJob, work: str, bytes_max: int) -> WorkResult:
        assert self._session is not None
        spark = self._session.spark
        settings = self._config.table(job.table)
        maintenance = self._config.maintenance
        assert maintenance is not None
        actions = TableActions(
            spark,
            catalog.load(spark, settings.identifier),
            branch=settings.commit_branch or MAIN_BRANCH,
            target_bytes=maintenance.target_file_size_bytes,
            min_input_files=maintenance.min_input_files or 0,
        )
        is_whole = work == "orphan-files"  # it reads the files of all snapshots
        with actions.history_kept(self._config.name, self._clock.now_ms(), is_whole=is_whole):
            match work:
                case "orphan-files":
                    assert job.older_than_ms is not None
                    return actions.remove_orphan_files(job.older_than_ms)
                case "delete-files":
                    return actions.apply_delete_files(bytes_max)
                case "small-files":
                    return actions.compact(bytes_max)
                case _:
                    return actions.rewrite_manifests()

    def _done(self, table: str, work: str, result: WorkResult, started_ms: int) -> None:
        numbers = {**result.as_json(), "duration_ms": self._clock.monotonic_ms() - started_ms}
        log.info("maintenance done", connector=self._config.name, table=table, work=work, **numbers)
        self._report({"table": table, "work": work, "state": "DONE", **numbers})

    def _refused(self, job: TableJob, error: IcefloeError) -> None:
        """Report that no work of a job can begin."""
        for work in job.work:
            self._failed(job.table, work, error.code, str(error), 0)

    def _failed(self, table: str, work: str, code: str, text: str, started_ms: int) -> None:
        message = KNOWN.mask(" ".join(text.split()))[:MESSAGE_CHARACTERS_MAX]
        if self._stopping.is_set():
            code, message = "maintenance_stopped", "it was stopped; what was committed stays"
        log.warning(
            "maintenance failed",
            connector=self._config.name,
            table=table,
            work=work,
            code=code,
            error=message,
        )
        duration_ms = self._clock.monotonic_ms() - started_ms if started_ms else 0
        failed = {"state": "FAILED", "code": code, "message": message, "duration_ms": duration_ms}
        self._report({"table": table, "work": work, **failed})


def _class_path(groups: Sequence[str]) -> tuple[str, str]:
    """Return the jars of the groups before, and after those of Spark in the class path.

    After them, the JVM starts with the class archive of Spark, for which the class path must begin
    as that of a worker.
    """
    before = [jar for group in groups if group in _BEFORE_SPARK for jar in resolve(group)]
    after = [jar for group in groups if group not in _BEFORE_SPARK for jar in resolve(group)]
    return os.pathsep.join(map(str, before)), os.pathsep.join(map(str, after))


def _explained(error: Py4JJavaError) -> tuple[str, str]:
    """Return the code and the first line of an exception of the JVM, with its causes."""
    texts: list[str] = []
    cause: Any = error.java_exception
    while cause is not None and len(texts) < CAUSES_MAX:
        texts.append(str(cause.toString()).partition("\n")[0])
        cause = cause.getCause()
    text = "; ".join(texts) or str(error)
    is_conflict = any(name in text for name in _CONFLICTS)
    return (CONFLICT if is_conflict else FAILED), text
