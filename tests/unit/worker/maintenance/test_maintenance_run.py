"""What a run does after work that failed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from connect.clock import SystemClock
from tests.support.tables import connector
from worker.maintenance.java_catalog import JavaCatalog
from worker.maintenance.maintenance_run import MaintenanceRun, TableJob
from worker.maintenance.table_actions import WorkResult

CATALOG = JavaCatalog("iceberg", "a.Class", {}, ())
CONFLICT = WorkResult(lost_commits=1)


class RunOfOutcomes(MaintenanceRun):
    """A run whose work has these outcomes.

    Args:
        outcomes: result or error by work.
    """

    def __init__(self, outcomes: Mapping[str, WorkResult | Exception]) -> None:
        self.reports: list[Mapping[str, Any]] = []
        self._outcomes = outcomes
        config, folder = connector("c", ["db.a"]), Path("unused")
        super().__init__(
            config,
            (),
            tables_at_once=1,
            heap_mb=512,
            folder=folder,
            clock=SystemClock(),
            report=self.reports.append,
        )

    def _do(self, catalog: JavaCatalog, job: TableJob, work: str, bytes_max: int) -> WorkResult:
        del catalog, job, bytes_max
        outcome = self._outcomes[work]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def test_other_work_on_the_table_is_done_after_a_failure() -> None:
    """A table whose files are always in conflict still gets its orphan files removed."""
    run = RunOfOutcomes(
        {
            "delete-files": CONFLICT,
            "manifests": PySparkException("no answer"),
            "orphan-files": WorkResult(orphan_files=1),
        }
    )
    run._maintain(CATALOG, TableJob("db.a", ("delete-files", "manifests", "orphan-files"), 1, 2))
    ended = [(r["work"], r.get("code")) for r in run.reports if r["state"] != "RUNNING"]
    assert ended == [
        ("delete-files", "maintenance_conflict"),
        ("manifests", "maintenance_failed"),
        ("orphan-files", None),
    ]
    run.stop()
    run._maintain(CATALOG, TableJob("db.a", ("orphan-files",), 1, 2))
    assert len(run.reports) == 6
