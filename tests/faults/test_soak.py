"""A soak: three nodes lose workers, coordinators and whole nodes while tables are maintained.

``SOAK_SECONDS`` is how long processes are killed while records are produced. ``SOAK_SEED`` repeats
the order of the kills; the test prints its seed.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.table import Table

from connect.model.layout import TopicPartition
from tests.faults import checkers
from tests.faults.checkers import Log, Rows
from tests.faults.readback import read_ranges
from tests.faults.soak_records import (
    APPEND_TOPIC,
    UPSERT_TOPIC,
    SoakProducer,
    read_rows,
    read_values,
    row_differences,
)
from tests.faults.soak_stack import (
    CONTROL_TOPIC,
    DEAD_TOPIC,
    EXPIRY_MS,
    NODES,
    TABLES,
    SoakStack,
    soak_stack,
)
from tests.faults.soak_watch import TableWatch, files_of, maintained

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SECONDS = int(os.environ.get("SOAK_SECONDS", "3600"))
SHORT_SECONDS = 60
SEED = int(os.environ.get("SOAK_SEED", str(time.time_ns() % 1_000_000)))
KILL_EVERY_S = 20.0
VICTIMS = ("worker", "coordinator", "node")
MAINTENANCE_PROCESS = "worker.maintenance"
PHASE_KILLS = 15  # after them, nothing is killed until everything runs and tables were maintained
RECORDS_PER_S = 200
RECOVERY_S = 900.0
FILES_LEFT_MAX = 10  # of a table that was maintained last; compaction leaves fewer than 5 files
COLUMNS = {APPEND_TOPIC: "text", UPSERT_TOPIC: "version"}
_NONE = np.zeros(0, np.int64)


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 6 * RECOVERY_S)
def test_hours_of_kills_lose_and_duplicate_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row is there once, every dead letter too, and everything runs without an operator."""
    with capsys.disabled():
        print(f"\nsoak: seed {SEED}, {SECONDS} s", flush=True)
    report = _soak(tmp_path, SECONDS)
    with capsys.disabled():
        print(report, flush=True)
    assert not report.findings


@pytest.mark.faults
@pytest.mark.timeout(SHORT_SECONDS + 6 * RECOVERY_S)
def test_a_minute_of_kills_loses_and_duplicates_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same with one kill of each kind, and maintenance after them."""
    report = _soak(tmp_path, SHORT_SECONDS)
    with capsys.disabled():
        print(f"\n{report}")
    assert not report.findings


@dataclass(frozen=True, slots=True)
class SoakReport:
    """What a soak has found; as text for its page.

    Attributes:
        findings: what is wrong.
        lines: figures.
    """

    findings: tuple[str, ...]
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((*self.lines, f"findings: {list(self.findings)}"))


def _soak(folder: Path, seconds: int) -> SoakReport:
    """Kill processes for a time; return what tables, topics, statuses and processes have then."""
    began_s = time.monotonic()
    with soak_stack(folder) as run:
        watch = TableWatch(run.catalog_properties, tuple(TABLES.values()), run.states)
        producer = SoakProducer(run.client, RECORDS_PER_S)
        producer.start()
        watch.start()
        try:
            run.wait_until(lambda: all(_rows(run).values()), "the first rows", RECOVERY_S)
            orphans = {topic: run.add_orphan(topic) for topic in TABLES}
            kills_s = time.monotonic()
            kills = _kill(run, lambda: _recover(run, producer, orphans), kills_s + seconds)
            killed_s = time.monotonic() - kills_s
            run.wait_until(lambda: _is_expired(run, watch), "old snapshots to expire", RECOVERY_S)
        finally:
            producer.stop()
        stopped_s = time.monotonic()
        run.wait_until(lambda: run.committed() == run.ends(), "reading to the end", RECOVERY_S)
        run.wait_until(run.is_running, "everything RUNNING", RECOVERY_S)
        recovered_s = time.monotonic() - stopped_s
        _wait_until_committed(run, producer)
        _wait_until_maintained(run, orphans)
        watch.stop()
        differences = {topic: _differences(run, topic, producer) for topic in TABLES}
        findings = [
            *(f"{topic}: {found}" for topic, found in differences.items() if any(found.values())),
            *_findings(run, producer, watch),
            *(f"process {process}" for process in run.orphan_processes()),
            *(f"no {victim} was killed" for victim in VICTIMS if not kills[victim]),
        ]
        if not run.is_running():
            findings.append(f"not everything is RUNNING: {run.states()}")
        stored = {topic: run.stored_files(topic) for topic in TABLES}
        results = maintained(run.node_logs())
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = (
        (
            f"soak: seed {SEED}, kills {dict(kills)} in {killed_s:.0f} s, "
            f"{time.monotonic() - began_s:.0f} s in all, load {os.getloadavg()[2]:.1f}, "
            f"{children.ru_utime + children.ru_stime:.0f} s of processor time"
        ),
        (
            f"records: {producer.sent:,} to each topic, {producer.broken.total()} dead letters, "
            f"read to the end {recovered_s:.0f} s after the last"
        ),
        f"rows: {differences}",
        (
            f"snapshots: { {name: len(seen) for name, seen in watch.snapshots.items()} }, "
            f"expired {dict(watch.expired)}, at once {dict(watch.snapshots_max)}"
        ),
        (
            f"files: added {dict(watch.files_added)}, in a table at once {dict(watch.files_max)}, "
            f"in the store at the end {stored}"
        ),
        f"maintenance: {dict(sorted(results.items()))}, commits {dict(watch.rewrites)}",
        f"states seen: {dict(watch.states)}",
    )
    return SoakReport(tuple(findings), lines)


def _kill(run: SoakStack, recover: Callable[[], None], until_s: float) -> Counter[str]:
    """Kill a process every ``KILL_EVERY_S``; each kind in turn, in random order, on any node.

    Each third time also the maintenance process is killed, if one runs.
    """
    rng = random.Random(SEED)
    kills: Counter[str] = Counter()
    victims: list[str] = []
    left = PHASE_KILLS
    while time.monotonic() < until_s:
        time.sleep(rng.uniform(0.7, 1.3) * KILL_EVERY_S)
        if not victims:
            victims = rng.sample(VICTIMS, len(VICTIMS))
            if run.kill(MAINTENANCE_PROCESS, rng.choice(NODES)):
                kills["maintenance"] += 1
        victim, node = victims.pop(), rng.choice(NODES)
        run.wait_until(lambda v=victim, n=node: run.kill(v, n), f"a {victim} to kill", RECOVERY_S)
        kills[victim] += 1
        left -= 1
        if not left:
            recover()
            left = PHASE_KILLS
    return kills


def _recover(run: SoakStack, producer: SoakProducer, orphans: Mapping[str, Path]) -> None:
    """Wait until everything runs and rows are committed; then until maintenance left few files.

    On a slow machine a rewrite takes longer than several commits and loses against them. So there
    are none while it is awaited.
    """
    committed = run.committed()
    run.wait_until(run.is_running, "everything RUNNING", RECOVERY_S)
    run.wait_until(lambda: _moved(committed, run.committed()), "progress", RECOVERY_S)
    with producer.paused():
        _wait_until_maintained(run, orphans)


def _wait_until_maintained(run: SoakStack, orphans: Mapping[str, Path]) -> None:
    run.wait_until(
        lambda: not [one for one in orphans.items() if not _is_maintained(run, *one)],
        "maintenance of both tables",
        RECOVERY_S,
    )


def _moved(before: dict[str, dict[int, int | None]], now: dict[str, dict[int, int | None]]) -> bool:
    return all(
        (now[topic][partition] or 0) > (offset or 0)
        for topic, offsets in before.items()
        for partition, offset in offsets.items()
    )


def _rows(run: SoakStack) -> dict[str, bool]:
    return {topic: run.table(topic).current_snapshot() is not None for topic in TABLES}


def _is_expired(run: SoakStack, watch: TableWatch) -> bool:
    """Whether each table lost snapshots, and has none of twice the age from which they expire."""
    oldest_ms = [
        min(snapshot.timestamp_ms for snapshot in run.table(topic).metadata.snapshots)
        for topic in TABLES
    ]
    is_young = min(oldest_ms) > time.time() * 1000 - 2 * EXPIRY_MS
    return is_young and all(watch.expired[name] for name in TABLES.values())


def _wait_until_committed(run: SoakStack, producer: SoakProducer) -> None:
    """Wait until the tables have all rows; what never comes is reported by the comparison."""
    deadline_s = time.monotonic() + RECOVERY_S
    while any(
        row_differences(_wanted(topic, producer), _found(run, topic))["lost"] for topic in TABLES
    ):
        if time.monotonic() > deadline_s:
            return
        time.sleep(5)


def _wanted(topic: str, producer: SoakProducer) -> Counter[Any]:
    if topic == APPEND_TOPIC:
        return Counter((n, f"n{n}") for n in producer.appended)
    return Counter(producer.versions.items())


def _found(run: SoakStack, topic: str) -> Counter[Any]:
    return read_rows(run.table(topic), COLUMNS[topic])


def _differences(run: SoakStack, topic: str, producer: SoakProducer) -> dict[str, int]:
    """Compare a table with its records, by two readers; the worse result counts."""
    table = run.table(topic)
    scanned = table.scan(selected_fields=("id", COLUMNS[topic])).to_arrow()
    columns = (scanned.column(name).to_pylist() for name in ("id", COLUMNS[topic]))
    wanted = _wanted(topic, producer)
    results = [
        row_differences(wanted, found)
        for found in (_found(run, topic), Counter(zip(*columns, strict=True)))
    ]
    return {kind: max(result[kind] for result in results) for kind in results[0]}


def _is_maintained(run: SoakStack, topic: str, orphan: Path) -> bool:
    """Whether maintenance has left few files, no delete file and no orphan; else ask for it."""
    table: Table = run.table(topic)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    has_deletes = int(summary.get("total-delete-files", 0)) > 0
    if files_of(summary) <= FILES_LEFT_MAX and not has_deletes and not orphan.exists():
        return True
    if run.maintenance(topic).get("state") not in {"RUNNING", "WAITING"}:
        run.request_maintenance(topic)
    return False


def _findings(run: SoakStack, producer: SoakProducer, watch: TableWatch) -> list[str]:
    """Return what the snapshots, the announcements and the dead letters have that is wrong."""
    findings = []
    for name, seen in watch.snapshots.items():
        history = [seen[number] for number in sorted(seen)]
        found = [
            *checkers.check_commits(history),
            *checkers.check_control_offsets(history),
            *checkers.check_valid_through(Log(*[_NONE] * 4), Rows(*[_NONE] * 3), history),
        ]
        findings += [f"{name}: {one}" for one in found]
    ranges, _ = read_ranges(run.open_servers, CONTROL_TOPIC)
    ends = {
        TopicPartition(topic, partition): end or 0
        for topic, offsets in run.ends().items()
        for partition, end in offsets.items()
    }
    findings += checkers.check_ranges(ranges, ends)
    findings += checkers.check_record_counts(
        (one for reported in ranges.values() for one in reported),
        records=sum(ends.values()),
        rows=2 * len(producer.appended),
        dead_letters=producer.broken.total(),
        dropped=0,
    )
    letters = Counter(read_values(run.client, DEAD_TOPIC))
    if letters != producer.broken:
        findings.append(f"dead letters: {row_differences(producer.broken, letters)}")
    return findings
