"""Which maintenance a node begins, by the limits of the configuration."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from connect.config.connector import MaintenanceConfig
from connect.node.herder.units.maintenance_plan import HOUR_MS, MaintenancePlan

DAY_MS = 24 * HOUR_MS
NOW_MS = 20_000 * DAY_MS + 12 * HOUR_MS  # noon, UTC


def plan(*tables: str, **limits: Any) -> MaintenancePlan:
    """A plan whose coordinator has just begun."""
    new = MaintenancePlan()
    config = MaintenanceConfig(min_input_files=5, min_delete_files=2, **limits)
    new.opened({**asdict(config), "tables": list(tables)}, NOW_MS)
    return new


def done(planned: MaintenancePlan, table: str, size: int, at_ms: int) -> None:
    """The process has rewritten so many bytes."""
    report = {"table": table, "work": "small-files", "state": "DONE", "rewritten_bytes": size}
    planned.received(report, at_ms)


def running(planned: MaintenancePlan, table: str, what: str, at_ms: int) -> None:
    """The process begins a work."""
    planned.received({"table": table, "work": what, "state": "RUNNING"}, at_ms)


def failed(planned: MaintenancePlan, table: str, what: str, code: str, at_ms: int) -> None:
    """The process has failed with a work."""
    planned.received({"table": table, "work": what, "state": "FAILED", "code": code}, at_ms)


def work(planned: MaintenancePlan, now_ms: int) -> dict[str, list[str]]:
    """Table -> the work that may begin."""
    return {job["table"]: job["work"] for job in planned.jobs(now_ms)}


def test_what_is_due_begins() -> None:
    """One rewrite applies delete files and compacts; each table has its share of the bytes."""
    planned = plan("db.a", "db.b", "db.c", bytes_per_hour=1000)
    planned.reported("db.a", {"delete-files": 3, "small-files": 9, "manifests": 4})
    planned.reported("db.b", {"small-files": 5})
    planned.reported("db.c", {"manifests": 5})
    jobs = planned.jobs(NOW_MS)
    assert jobs == [
        {"table": "db.a", "work": ["delete-files", "manifests"], "bytes_max": 500},
        {"table": "db.b", "work": ["small-files"], "bytes_max": 500},
        {"table": "db.c", "work": ["manifests"], "bytes_max": 500},
    ]


def test_nothing_begins_without_limits() -> None:
    """A connector without the keys, and one that does not run on this node."""
    planned = MaintenancePlan()
    planned.reported("db.a", {"small-files": 9})
    assert not planned.jobs(NOW_MS)
    planned = plan("db.a")
    planned.reported("db.a", {"small-files": 9})
    planned.closed()
    assert not planned.jobs(NOW_MS)
    assert planned.view(NOW_MS, is_allowed=True, is_running=False)["state"] == "DISABLED"


def test_the_same_work_rests() -> None:
    """It begins again after the interval, also if it has failed."""
    planned = plan("db.a", min_interval_ms=1000)
    planned.reported("db.a", {"small-files": 9})
    planned.begun()
    running(planned, "db.a", "small-files", NOW_MS)
    planned.reported("db.a", {"small-files": 10, "delete-files": 2})
    assert work(planned, NOW_MS + 999) == {"db.a": ["delete-files"]}
    assert work(planned, NOW_MS + 1000) == {"db.a": ["delete-files"]}
    planned.reported("db.a", {"small-files": 10})
    assert work(planned, NOW_MS + 1000) == {"db.a": ["small-files"]}


def test_the_bytes_of_an_hour_are_a_limit() -> None:
    """Work that rewrites no data continues."""
    planned = plan("db.a", bytes_per_hour=100)
    planned.reported("db.a", {"small-files": 9, "manifests": 4})
    done(planned, "db.a", 60, NOW_MS)
    planned.reported("db.a", {"small-files": 9, "manifests": 4})
    assert planned.jobs(NOW_MS + 1)[0]["bytes_max"] == 40
    done(planned, "db.a", 60, NOW_MS + 1)
    assert work(planned, NOW_MS + 2) == {"db.a": ["manifests"]}
    planned.reported("db.a", {"small-files": 9, "manifests": 4})
    assert work(planned, NOW_MS + 2) == {"db.a": ["manifests"]}
    assert planned.jobs(NOW_MS + HOUR_MS)[0] == {
        "table": "db.a",
        "work": ["small-files", "manifests"],
        "bytes_max": 40,
    }


@pytest.mark.parametrize(
    ("window", "is_open"),
    [
        ((11 * 60, 13 * 60), True),
        ((12 * 60, 12 * 60 + 1), True),
        ((10 * 60, 12 * 60), False),
        ((22 * 60, 5 * 60), False),
        ((22 * 60, 12 * 60 + 1), True),
        ((12 * 60, 5 * 60), True),
    ],
)
def test_work_begins_within_the_window(window: tuple[int, int], *, is_open: bool) -> None:
    """Of the day, UTC; it may last until the next day. An operator's request ignores it."""
    planned = plan("db.a", window=window)
    planned.reported("db.a", {"small-files": 9})
    assert bool(planned.jobs(NOW_MS)) == is_open
    planned.is_requested = True
    assert work(planned, NOW_MS) == {"db.a": ["delete-files"]}


def test_orphan_files_are_removed_once_a_day() -> None:
    """Also by a node that was started again before a day had passed."""
    planned = plan("db.a", orphan_age_ms=3 * DAY_MS, orphan_interval_ms=DAY_MS)
    assert not planned.jobs(NOW_MS + 11 * HOUR_MS)
    at_ms = NOW_MS + 12 * HOUR_MS
    assert work(planned, at_ms) == {"db.a": ["orphan-files"]}
    planned.begun()
    running(planned, "db.a", "orphan-files", at_ms)
    assert not planned.jobs(at_ms + 23 * HOUR_MS)
    assert work(planned, at_ms + 24 * HOUR_MS) == {"db.a": ["orphan-files"]}


def test_an_operator_stops_and_begins_it() -> None:
    """A stop lasts until the next request, which begins all enabled work on all tables."""
    planned = plan("db.a", "db.b", orphan_age_ms=3 * DAY_MS)
    planned.reported("db.a", {"small-files": 9})
    planned.is_held = True
    assert not planned.jobs(NOW_MS)
    assert planned.view(NOW_MS, is_allowed=True, is_running=False)["state"] == "STOPPED"
    planned.is_held, planned.is_requested = False, True
    assert work(planned, NOW_MS) == {name: ["delete-files", "orphan-files"] for name in planned.due}
    planned.begun()
    for table in ("db.a", "db.b"):
        running(planned, table, "delete-files", NOW_MS)
    assert not planned.jobs(NOW_MS + 1)


def test_unfinished_work_of_a_process_that_ended_has_failed() -> None:
    """What it had reported as done stays done."""
    planned = plan("db.a", "db.b")
    done(planned, "db.a", 1, NOW_MS)
    planned.received({"table": "db.b", "work": "manifests", "state": "RUNNING"}, NOW_MS)
    planned.ended("maintenance_died", "status -9", NOW_MS)
    results = planned.view(NOW_MS, is_allowed=True, is_running=False)["results"]
    assert [(r["table"], r["state"], r.get("code")) for r in results] == [
        ("db.a", "DONE", None),
        ("db.b", "FAILED", "maintenance_died"),
    ]


def test_work_that_becomes_due_during_a_run_is_done_next() -> None:
    """The end of the run clears only what was reported before the run began."""
    planned = plan("db.a", "db.b", min_interval_ms=1000)
    for table in ("db.a", "db.b"):
        planned.reported(table, {"delete-files": 3, "small-files": 9})
        running(planned, table, "delete-files", NOW_MS)
    planned.reported("db.a", {"delete-files": 14, "manifests": 4})
    for table in ("db.a", "db.b"):
        planned.received({"table": table, "work": "delete-files", "state": "DONE"}, NOW_MS + 500)
    assert planned.due == {"db.a": {"delete-files": 14, "manifests": 4}, "db.b": {}}
    assert work(planned, NOW_MS + 1499) == {"db.a": ["manifests"]}  # the other work rests
    assert work(planned, NOW_MS + 1500) == {"db.a": ["delete-files", "manifests"]}


def test_the_end_of_work_adds_no_table() -> None:
    """The connector stopped, or was configured without the table, meanwhile."""
    planned = plan("db.a")
    planned.closed()
    done(planned, "db.a", 1, NOW_MS)
    assert not planned.due


@pytest.mark.parametrize("code", ["maintenance_failed", "maintenance_died", "maintenance_stopped"])
def test_a_failed_removal_of_orphan_files_is_repeated(code: str) -> None:
    """After pauses that grow, five times until the next interval; not after it has worked."""
    planned = plan("db.a", "db.b", orphan_age_ms=3 * DAY_MS, min_interval_ms=0)
    at_ms = NOW_MS + 12 * HOUR_MS
    running(planned, "db.b", "orphan-files", at_ms)
    planned.received({"table": "db.b", "work": "orphan-files", "state": "DONE"}, at_ms)
    for pause_min in (1, 2, 4, 8, 16):
        running(planned, "db.a", "orphan-files", at_ms)
        failed(planned, "db.a", "orphan-files", code, at_ms + 5)
        assert not planned.jobs(at_ms + pause_min * 60_000)
        at_ms += pause_min * 60_000 + 5
        assert work(planned, at_ms) == {"db.a": ["orphan-files"]}
    failed(planned, "db.a", "orphan-files", code, at_ms)
    assert not planned.jobs(NOW_MS + 36 * HOUR_MS - 1)
    at_ms = NOW_MS + 36 * HOUR_MS
    assert work(planned, at_ms) == {name: ["orphan-files"] for name in ("db.b", "db.a")}
    running(planned, "db.a", "orphan-files", at_ms)
    failed(planned, "db.a", "orphan-files", code, at_ms)
    assert "db.a" in work(planned, at_ms + 60_000)
    running(planned, "db.a", "orphan-files", at_ms + 60_000)
    planned.received({"table": "db.a", "work": "orphan-files", "state": "DONE"}, at_ms + 60_000)
    assert "db.a" not in work(planned, at_ms + HOUR_MS)


def test_orphan_files_that_cannot_be_removed_are_not_tried_again() -> None:
    """The store is not supported: nothing changes until an operator changes it."""
    planned = plan("db.a", orphan_age_ms=3 * DAY_MS)
    at_ms = NOW_MS + 12 * HOUR_MS
    failed(planned, "db.a", "orphan-files", "maintenance_unsupported", at_ms)
    assert not planned.jobs(at_ms + 23 * HOUR_MS)


def test_tables_that_a_run_did_not_reach_come_first() -> None:
    """A run of many tables ends after six hours; the next one begins with the others."""
    planned = plan("db.a", "db.b", "db.c", min_interval_ms=1000)
    for table in ("db.a", "db.b", "db.c"):
        planned.reported(table, {"small-files": 9})
    planned.begun()
    running(planned, "db.a", "small-files", NOW_MS)
    done(planned, "db.a", 1, NOW_MS + 1)
    planned.reported("db.a", {"small-files": 9})
    running(planned, "db.b", "small-files", NOW_MS + 2)
    planned.ended("maintenance_stopped", "it took longer than six hours", NOW_MS + 3)
    assert list(work(planned, NOW_MS + 4)) == ["db.c"]
    assert list(work(planned, NOW_MS + 5000)) == ["db.c", "db.a", "db.b"]


def test_a_rewrite_that_lost_is_repeated_with_half_of_the_bytes() -> None:
    """A shorter rewrite meets fewer commits of the stream; other failures change nothing."""
    planned = plan("db.a", min_interval_ms=0, bytes_per_hour=1024)
    planned.reported("db.a", {"delete-files": 3})
    given = []
    for code in ("maintenance_conflict", "maintenance_conflict", "maintenance_failed", None, None):
        running(planned, "db.a", "delete-files", NOW_MS)
        planned.reported("db.a", {"delete-files": 3})
        given.append(planned.jobs(NOW_MS)[0]["bytes_max"])
        if code is None:
            planned.received({"table": "db.a", "work": "delete-files", "state": "DONE"}, NOW_MS)
        else:
            failed(planned, "db.a", "delete-files", code, NOW_MS)
    given.append(planned.jobs(NOW_MS)[0]["bytes_max"])
    assert given == [1024, 512, 256, 256, 512, 1024]


def test_work_that_no_run_can_do_rests_for_a_day() -> None:
    """Not for ten minutes, as there may be thousands of tables; a new configuration is tried."""
    planned = plan("db.a")
    planned.reported("db.a", {"small-files": 9})
    failed(planned, "db.a", "small-files", "maintenance_unsupported", NOW_MS)
    planned.reported("db.a", {"small-files": 10})
    assert not planned.jobs(NOW_MS + DAY_MS - 1)
    assert work(planned, NOW_MS + DAY_MS) == {"db.a": ["small-files"]}
    planned.opened({**asdict(MaintenanceConfig(min_input_files=5)), "tables": ["db.a"]}, NOW_MS)
    planned.reported("db.a", {"small-files": 9})
    assert work(planned, NOW_MS + HOUR_MS) == {"db.a": ["small-files"]}


def test_a_table_that_is_gone_has_no_work() -> None:
    """Until a commit to a new table of that name makes the coordinator report again."""
    planned = plan("db.a")
    planned.reported("db.a", {"small-files": 9})
    failed(planned, "db.a", "small-files", "table_missing", NOW_MS)
    assert not planned.jobs(NOW_MS + HOUR_MS)
    planned.reported("db.a", {"small-files": 5})
    assert work(planned, NOW_MS + HOUR_MS) == {"db.a": ["small-files"]}
