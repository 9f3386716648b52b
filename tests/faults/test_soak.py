"""A soak: three nodes lose workers, coordinators and whole nodes while tables are maintained.

``SOAK_SECONDS`` is how long records are produced and processes are killed. ``SOAK_SEED`` repeats
the order of the kills; the test prints its seed.
"""

from __future__ import annotations

import os
import random
import resource
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from connect.model.layout import TopicPartition
from tests.faults import checkers
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

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak]

SECONDS = int(os.environ.get("SOAK_SECONDS", "240"))
SEED = int(os.environ.get("SOAK_SEED", str(time.time_ns() % 1_000_000)))
KILL_EVERY_S = 20.0
VICTIMS = ("worker", "coordinator", "node")
MAINTENANCE_PROCESS = "worker.maintenance"
PHASE_KILLS = 15  # after them, nothing is killed until everything runs and a table was maintained
RECORDS_PER_S = 200
RECOVERY_S = 900.0
FILES_LEFT_MAX = 10  # of a table that was maintained last; compaction leaves fewer than 5 files
COLUMNS = {APPEND_TOPIC: "text", UPSERT_TOPIC: "version"}


@pytest.mark.timeout(SECONDS + 6 * RECOVERY_S)
def test_hours_of_kills_lose_and_duplicate_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row is there once, every dead letter too, and everything runs without an operator."""
    began_s = time.monotonic()
    with capsys.disabled():
        print(f"\nsoak: seed {SEED}, {SECONDS} s", flush=True)
    with soak_stack(tmp_path) as run:
        watch = TableWatch(run.catalog_properties, tuple(TABLES.values()), run.states)
        producer = SoakProducer(run.client, RECORDS_PER_S)
        producer.start()
        watch.start()
        try:
            run.wait_until(lambda: all(_rows(run).values()), "the first rows", RECOVERY_S)
            orphans = [run.add_orphan(topic) for topic in TABLES]
            soak_s = time.monotonic()
            kills = _kill(run, random.Random(SEED), began_s=soak_s)
            soaked_s = time.monotonic() - soak_s
            run.wait_until(lambda: _is_expired(run, watch), "old snapshots to expire", RECOVERY_S)
        finally:
            producer.stop()
        stopped_s = time.monotonic()
        run.wait_until(lambda: run.committed() == run.ends(), "reading to the end", RECOVERY_S)
        run.wait_until(run.is_running, "everything RUNNING", RECOVERY_S)
        recovered_s = time.monotonic() - stopped_s
        _wait_until_committed(run, producer)
        _maintain(run)
        watch.stop()
        results = maintained(run.node_logs())
        differences = {topic: _differences(run, topic, producer) for topic in TABLES}
        findings = _findings(run, producer, watch)
        stored = {topic: run.stored_files(topic) for topic in TABLES}
        left = [str(path) for path in orphans if path.exists()]
        is_running = run.is_running()
        processes = run.orphan_processes()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    with capsys.disabled():
        print(
            f"soak: seed {SEED}, kills {dict(kills)} in {soaked_s:.0f} s, "
            f"{time.monotonic() - began_s:.0f} s in all, load {os.getloadavg()[2]:.1f}\n"
            f"records: {producer.sent:,} to each topic, {producer.broken.total()} broken ones, "
            f"read to the end {recovered_s:.0f} s after the last\n"
            f"rows: {differences}\n"
            f"commits: { {name: len(seen) for name, seen in watch.snapshots.items()} }, "
            f"expired {dict(watch.expired)}, snapshots at once {dict(watch.snapshots_max)}\n"
            f"files: added {dict(watch.files_added)}, in a table at once {dict(watch.files_max)}, "
            f"in the store at the end {stored}\n"
            f"maintenance: {dict(sorted(results.items()))}, commits {dict(watch.rewrites)}\n"
            f"states seen: {dict(watch.states)}\n"
            f"{children.ru_utime + children.ru_stime:.0f} s of processor time",
            flush=True,
        )
    assert differences == {topic: {"lost": 0, "twice": 0} for topic in TABLES}
    assert not findings
    assert is_running
    assert not processes
    assert not left
    assert all(kills[victim] for victim in VICTIMS)


def _kill(run: SoakStack, rng: random.Random, *, began_s: float) -> Counter[str]:
    """Kill a process every ``KILL_EVERY_S``; each kind in turn, in random order, on any node.

    Each third time also the maintenance process is killed, if one runs.
    """
    kills: Counter[str] = Counter()
    victims: list[str] = []
    left = PHASE_KILLS
    while time.monotonic() - began_s < SECONDS:
        time.sleep(rng.uniform(0.7, 1.3) * KILL_EVERY_S)
        if not victims:
            victims = rng.sample(VICTIMS, len(VICTIMS))
            if run.kill(MAINTENANCE_PROCESS, rng.choice(NODES)):
                kills["maintenance"] += 1
        victim, node = victims.pop(), rng.choice(NODES)
        if run.kill(victim, node):
            kills[victim] += 1
            left -= 1
        if not left:
            _recover(run)
            left = PHASE_KILLS
    return kills


def _recover(run: SoakStack) -> None:
    """Wait until everything runs, rows are committed and each table was maintained again."""
    done = _done(run)
    committed = run.committed()
    run.wait_until(run.is_running, "everything RUNNING", RECOVERY_S)
    run.wait_until(lambda: _moved(committed, run.committed()), "progress", RECOVERY_S)
    run.wait_until(
        lambda: all(_done(run)[name] > done[name] for name in TABLES.values()),
        "maintenance between kills",
        RECOVERY_S,
    )


def _done(run: SoakStack) -> Counter[str]:
    """How often work of the maintenance was done, by table."""
    done: Counter[str] = Counter()
    for (table, _, outcome), count in maintained(run.node_logs()).items():
        done[table] += count if outcome == "DONE" else 0
    return done


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


def _maintain(run: SoakStack) -> None:
    """Ask for all maintenance of each table, until compaction has left few files."""
    for topic in TABLES:
        run.wait_until(
            lambda t=topic: _is_maintained(run, t), f"maintenance of {topic}", RECOVERY_S
        )


def _is_maintained(run: SoakStack, topic: str) -> bool:
    table: Table = run.table(topic)
    snapshot = table.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    view = run.maintenance(topic)
    if view.get("state") in {"RUNNING", "WAITING"} or not summary:
        return False
    results = {one["work"]: one["state"] for one in view.get("results", ())}
    deletes = int(summary.get("total-delete-files", 0))
    is_done = results.get("orphan-files") == results.get("delete-files") == "DONE"
    if is_done and files_of(summary) <= FILES_LEFT_MAX and not deletes:
        return True
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
            *_valid_through_findings(history),
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


def _valid_through_findings(history: list[checkers.ObservedSnapshot]) -> list[str]:
    given = [one.valid_through_ms for one in history if one.valid_through_ms is not None]
    return [f"VTTS goes from {a} to {b}" for a, b in pairwise(given) if b < a]
