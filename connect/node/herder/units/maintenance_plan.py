"""The maintenance of one connector's tables, as this node plans it.

Rules of this file:
- The coordinator reports what is due, and the limits of the configuration. Nothing is stored: after
  a restart of the node, the coordinator reports again.
- The plan is pure: the time is given, and the work is only named.
- The removal of orphan files is due once in each interval since 1970. So a node that is restarted
  often still removes them. If it fails, it is repeated after pauses that grow.
- The end of work does not clear what the coordinator has reported since the work began.
- A rewrite that lost all its commits against other commits gets half as many bytes the next time,
  because a shorter one meets fewer commits. Each success doubles them again.
- Work counts as begun when the process reports that. The table that has waited longest comes first:
  a run that ends early leaves no table out for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from connect.config.connector import MaintenanceConfig

HOUR_MS: Final = 3_600_000
ORPHAN_FILES: Final = "orphan-files"
REWRITES: Final = frozenset({"delete-files", "small-files"})
"""Work that rewrites data files, and counts for the bytes per hour."""
_COVERS: Final = {"delete-files": ("delete-files", "small-files")}
TABLES_MAX: Final = 10_000
TIMES_MAX: Final = 4 * TABLES_MAX
REPEATS_MAX: Final = 5
"""Of a removal of orphan files that failed, until its next interval."""
REPEAT_MS_MIN: Final = 60_000
UNSUPPORTED: Final = "maintenance_unsupported"
UNSUPPORTED_REST_MS: Final = 24 * HOUR_MS
MISSING: Final = "table_missing"
CONFLICT: Final = "maintenance_conflict"
HALVINGS_MAX: Final = 16
RESULTS_MAX: Final = 1_000

Job: TypeAlias = dict[str, Any]
"""``table``, ``work`` in order, ``bytes_max``; ``older_than_ms`` is added when it is sent."""


@dataclass(slots=True)
class MaintenancePlan:
    """What is known of one connector's maintenance. Changed by the herder's thread only.

    Collections of results are replaced, so that readers need no lock.

    Attributes:
        limits: of the configuration; None while none is enabled.
        due: table -> work -> number of files that cause it.
        results: (table, work) -> the last report of the maintenance process.
        is_held: an operator stopped the maintenance.
        is_requested: an operator asked for a run now.
        has_process: a process of this node does the work, or is about to end.
    """

    limits: MaintenanceConfig | None = None
    due: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    results: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    is_held: bool = False
    is_requested: bool = False
    has_process: bool = False
    _since_ms: int = 0
    _last_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    _reported: set[str] = field(default_factory=set)
    _failures: dict[str, tuple[int, int]] = field(default_factory=dict)
    _halvings: dict[str, int] = field(default_factory=dict)
    _rewritten: Sequence[tuple[int, int]] = ()

    def opened(self, settings: Mapping[str, Any] | None, now_ms: int) -> None:
        """A coordinator began to work; what a former one reported is forgotten.

        Args:
            settings: fields of ``MaintenanceConfig`` and ``tables``; None if nothing is enabled.
            now_ms: wall clock.
        """
        self.due = {}
        self._reported.clear()
        self.results = {k: r for k, r in self.results.items() if r.get("code") != UNSUPPORTED}
        self.limits = None
        if settings is not None:
            fields = dict(settings)
            tables: Sequence[str] = fields.pop("tables")
            window = fields.pop("window")
            self.limits = MaintenanceConfig(**fields, window=window and (window[0], window[1]))
            self.due = {table: {} for table in tables}
        self._since_ms = self._since_ms or now_ms

    def reported(self, table: str, work: Mapping[str, int]) -> None:
        """Take the coordinator's report of the work that is due for a table."""
        if table in self.due or len(self.due) < TABLES_MAX:
            self.due = {**self.due, table: dict(work)}
            self._reported.add(table)

    def closed(self) -> None:
        """The connector does not run on this node any more."""
        self.limits, self.due = None, {}
        self.is_requested = False

    def jobs(self, now_ms: int) -> list[Job]:
        """Return the work that may begin now; the table that has waited longest comes first."""
        limits = self.limits
        if limits is None or self.is_held:
            return []
        if not (self.is_requested or _is_within(limits.window, now_ms)):
            return []
        left = limits.bytes_per_hour - self.bytes_of_hour(now_ms)
        jobs: list[Job] = []
        for table, counts in self.due.items():
            work = [
                w
                for w in self._work(limits, table, counts, now_ms)
                if left > 0 or w not in REWRITES
            ]
            if work:
                jobs.append({"table": table, "work": work, "bytes_max": max(0, left)})
        share = max(1, sum(1 for job in jobs if REWRITES.intersection(job["work"])))
        for job in jobs:
            job["bytes_max"] = job["bytes_max"] // share >> self._halvings.get(job["table"], 0)
        return sorted(jobs, key=self._waits_since_ms)

    def begun(self) -> None:
        """The jobs were given to a maintenance process."""
        self.is_requested = False

    def received(self, report: Mapping[str, Any], now_ms: int) -> None:
        """Take a report of the maintenance process."""
        key = (report["table"], report["work"])
        displayed = {k: v for k, v in report.items() if k not in {"event", "connector"}}
        results = {k: v for k, v in self.results.items() if k != key}
        while len(results) >= RESULTS_MAX:
            results.pop(next(iter(results)))
        self.results = {**results, key: {**displayed, "time_ms": now_ms}}
        self._note(*key, report, now_ms)
        if size := report.get("rewritten_bytes"):
            kept = [rewrite for rewrite in self._rewritten if rewrite[0] > now_ms - HOUR_MS]
            self._rewritten = [*kept, (now_ms, size)]

    def _note(self, table: str, work: str, report: Mapping[str, Any], now_ms: int) -> None:
        """Note when the work began and ended, and what is no longer due."""
        covered = _COVERS.get(work, (work,))
        state = report["state"]
        if state == "RUNNING":
            self._reported.discard(table)
        elif report.get("code") == MISSING and table in self.due:  # a later commit reports again
            self.due = {**self.due, table: {}}
        elif state == "DONE" and table in self.due and table not in self._reported:
            left = {w: count for w, count in self.due[table].items() if w not in covered}
            self.due = {**self.due, table: left}
        if work in REWRITES:
            self._note_conflict(table, report)
        if work == ORPHAN_FILES:
            self._note_orphan_files(table, report, now_ms)
        if work != ORPHAN_FILES or state != "DONE":  # its interval counts from its begin
            for one in covered:
                self._last_ms.pop((table, one), None)
                self._last_ms[table, one] = now_ms
            while len(self._last_ms) > TIMES_MAX:
                del self._last_ms[next(iter(self._last_ms))]

    def _note_conflict(self, table: str, report: Mapping[str, Any]) -> None:
        is_conflict = report.get("code") == CONFLICT
        if not is_conflict and report["state"] != "DONE":
            return
        halvings = self._halvings.pop(table, 0) + (1 if is_conflict else -1)
        if halvings > 0 and len(self._halvings) < TABLES_MAX:
            self._halvings[table] = min(halvings, HALVINGS_MAX)

    def _note_orphan_files(self, table: str, report: Mapping[str, Any], now_ms: int) -> None:
        if report["state"] == "RUNNING":
            if self._is_new_interval(table, now_ms):
                self._failures.pop(table, None)
        elif report["state"] == "DONE" or report.get("code") == UNSUPPORTED:
            self._failures.pop(table, None)
        elif table in self._failures or len(self._failures) < TABLES_MAX:
            self._failures[table] = (self._failures.get(table, (0, 0))[0] + 1, now_ms)

    def unfinished(self) -> list[tuple[str, str]]:
        """Return table and work of what the process has begun and not ended."""
        return [key for key, result in self.results.items() if result["state"] == "RUNNING"]

    def ended(self, code: str, message: str, now_ms: int) -> None:
        """The process ended: what it had not finished has failed."""
        failed = {"state": "FAILED", "code": code, "message": message}
        for key in self.unfinished():
            self.received({**self.results[key], **failed}, now_ms)

    def bytes_of_hour(self, now_ms: int) -> int:
        """Return the size of the data files that were rewritten in the last hour."""
        return sum(size for at_ms, size in self._rewritten if at_ms > now_ms - HOUR_MS)

    def view(self, now_ms: int, *, is_allowed: bool, is_running: bool) -> dict[str, Any]:
        """Return the view of the REST API as a JSON object."""
        limits = self.limits
        return {
            "state": self._state(now_ms, is_allowed=is_allowed, is_running=is_running),
            "due": [
                {"table": table, "work": work, "files": count}
                for table, counts in self.due.items()
                for work, count in counts.items()
            ],
            "results": list(self.results.values()),
            "bytes_last_hour": self.bytes_of_hour(now_ms),
            "bytes_per_hour": None if limits is None else limits.bytes_per_hour,
        }

    def _state(self, now_ms: int, *, is_allowed: bool, is_running: bool) -> str:
        if self.limits is None:
            return "DISABLED"
        if not is_allowed:
            return "NOT_ALLOWED"
        if is_running:
            return "RUNNING"
        if self.is_held:
            return "STOPPED"
        return "WAITING" if self.is_requested or self.jobs(now_ms) else "IDLE"

    def _work(
        self, limits: MaintenanceConfig, table: str, counts: Mapping[str, int], now_ms: int
    ) -> list[str]:
        if self.is_requested:
            return _enabled(limits)
        work = [w for w in counts if self._has_rested(limits, table, w, now_ms)]
        for covering in [w for w in work if w in _COVERS]:
            work = [w for w in work if w == covering or w not in _COVERS[covering]]
        if limits.orphan_age_ms is not None and (
            self._is_new_interval(table, now_ms) or self._is_repeated(limits, table, now_ms)
        ):
            work.append(ORPHAN_FILES)
        return work

    def _is_new_interval(self, table: str, now_ms: int) -> bool:
        """Return whether an interval of the removal of orphan files began after the last one."""
        if self.limits is None:
            return False
        interval_ms = self.limits.orphan_interval_ms
        last_ms = self._last_ms.get((table, ORPHAN_FILES), self._since_ms)
        return now_ms // interval_ms > last_ms // interval_ms

    def _is_repeated(self, limits: MaintenanceConfig, table: str, now_ms: int) -> bool:
        """Return whether the pause after a failed removal of orphan files is over."""
        failures, failed_ms = self._failures.get(table, (0, 0))
        if not 0 < failures <= REPEATS_MAX:
            return False
        pause_ms = max(REPEAT_MS_MIN, limits.min_interval_ms) << (failures - 1)
        return now_ms - failed_ms >= pause_ms

    def _waits_since_ms(self, job: Job) -> int:
        return min(self._last_ms.get((job["table"], work), 0) for work in job["work"])

    def _has_rested(self, limits: MaintenanceConfig, table: str, work: str, now_ms: int) -> bool:
        last_ms = self._last_ms.get((table, work))
        code = self.results.get((table, work), {}).get("code")
        rest_ms = max(limits.min_interval_ms, UNSUPPORTED_REST_MS if code == UNSUPPORTED else 0)
        return last_ms is None or now_ms - last_ms >= rest_ms


def _enabled(limits: MaintenanceConfig) -> list[str]:
    """Return all work that the configuration enables, in order."""
    settings = {
        "delete-files": limits.min_delete_files,
        "manifests": limits.min_manifests,
        ORPHAN_FILES: limits.orphan_age_ms,
    }
    return [work for work, value in settings.items() if value is not None]


def _is_within(window: tuple[int, int] | None, now_ms: int) -> bool:
    """Return whether a time is within a daily window, UTC."""
    if window is None:
        return True
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    minute = moment.hour * 60 + moment.minute
    start, end = window
    return start <= minute < end if start < end else minute >= start or minute < end
