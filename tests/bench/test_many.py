"""The figures of many tasks, many tables and many connectors in docs/evidence/performance.md.

They are reported, never asserted: machines are noisy. ``BENCH_CONNECTORS`` is the number of idle
connectors, ``BENCH_BUSY`` are the numbers of connectors with records, ``BENCH_TASK_RECORDS`` and
``BENCH_TABLE_RECORDS`` the length of a backlog, ``BENCH_TABLES`` the numbers of tables,
``BENCH_DISTRIBUTION`` the modes by which their rows are distributed.
``tests/e2e/test_many_connectors.py`` asserts threads and file handles.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from connect.embedded.payments import produce, ranges
from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.bench.measured_stack import PARTITIONS, MeasuredStack, connector, measured_stack, wait
from tests.bench.visibility import SteadyStream, delays

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3_600)]

CONNECTORS = int(os.environ.get("BENCH_CONNECTORS", "20"))
BUSY = tuple(map(int, os.environ.get("BENCH_BUSY", "1,10").split(",")))
RECORDS = int(os.environ.get("BENCH_TASK_RECORDS", "1000000"))
TABLES = tuple(map(int, os.environ.get("BENCH_TABLES", "1,50,1000").split(",")))
TABLE_RECORDS = int(os.environ.get("BENCH_TABLE_RECORDS", "2000000"))
DISTRIBUTIONS = tuple(os.environ.get("BENCH_DISTRIBUTION", "none").split(","))
PAIRS = ("1", "10", "10", "1", "1", "10")
QUIET_S = 30
REPORT = Path("build/bench-many.json")


def _cpu_share(running: MeasuredStack, seconds: int = QUIET_S) -> float:
    """Processor time of node, worker and coordinator, in percent of a core."""
    with running.measured() as costs:
        time.sleep(seconds)
    used = sum(costs[0].cpu_s.get(kind, 0.0) for kind in ("node", "worker", "coordinator"))
    return round(100 * used / costs[0].seconds, 2)


def test_tasks_max(measurements: dict[str, Any], tmp_path: Path) -> None:
    """``tasks.max`` 10 next to 1, in pairs: a backlog, and an interval of 1 s without records."""
    found: dict[str, dict[str, list[float]]] = {"backlog": {}, "interval_1s": {}}
    with measured_stack(tmp_path) as running:
        running.topic("backlog")
        produce(running.kafka, "backlog", ranges(RECORDS, [0] * PARTITIONS))
        running.topic("quiet")
        for turn, tasks in enumerate(("1", *PAIRS)):  # the first run warms the JVMs up
            name = f"t{turn}"
            with running.measured() as costs:
                config = connector(name, "backlog", f"bench.{name}", **{"tasks.max": tasks})
                running.create(name, config)
                wait(lambda table=f"bench.{name}": running.rows(table) >= RECORDS)
            running.delete(name)
            if turn:
                spent = sum(costs[0].cpu_s.values()) / RECORDS * 1e6
                found["backlog"].setdefault(tasks, []).append(round(spent, 2))
        for turn, tasks in enumerate(PAIRS):
            name, more = f"q{turn}", {"iceberg.control.commit.interval-ms": "1000"}
            config = connector(name, "quiet", f"bench.{name}", **more, **{"tasks.max": tasks})
            running.create(name, config)
            running.wait_running(name)
            time.sleep(5)
            found["interval_1s"].setdefault(tasks, []).append(_cpu_share(running))
            running.delete(name)
    for what, values in found.items():
        ratio = statistics.median(values["10"]) / statistics.median(values["1"])
        measurements[f"tasks_max_{what}"] = {**values, "ratio": round(ratio, 3)}


def test_idle_connectors(measurements: dict[str, Any], tmp_path: Path) -> None:
    """Threads, file handles, memory and processor time of connectors without records."""
    with measured_stack(tmp_path) as running:
        topics = [f"idle-{number}" for number in range(CONNECTORS)]
        for topic in topics:
            running.topic(topic, partitions=1)
        time.sleep(20)  # the warm-up of the worker
        before, quiet = running.held(), _cpu_share(running)
        for topic in topics:
            more = {"iceberg.control.topic": "control", "tasks.max": "10"}
            more["iceberg.control.commit.interval-ms"] = "300000"
            running.create(topic, connector(topic, topic, f"bench.{topic}", **more))
        for topic in topics:
            running.wait_running(topic)
        time.sleep(45)
        after, busy = running.held(), _cpu_share(running, 60)
    each = {k: round((after[k] - before[k]) / CONNECTORS, 2) for k in before}
    measurements["idle_connectors"] = {
        "connectors": CONNECTORS,
        "each": {**each, "cpu_percent": round((busy - quiet) / CONNECTORS, 3)},
        "base": {**before, "cpu_percent": quiet},
    }


def test_busy_connectors(measurements: dict[str, Any], tmp_path: Path) -> None:
    """Connectors at an interval of 1 s with 100 records a second each, then with a backlog each."""
    with measured_stack(tmp_path) as running:
        running.topic("backlog")
        produce(running.kafka, "backlog", ranges(RECORDS, [0] * PARTITIONS))
        _backlogs(running, "first", 1)  # warms the JVMs up
        measurements["busy_connectors"] = [_steady(running, count) for count in BUSY]
        measurements["connectors_with_backlog"] = [
            _backlogs(running, f"b{count}", count) for count in BUSY
        ]


def _steady(running: MeasuredStack, connectors: int) -> dict[str, Any]:
    """Connectors with a topic, a table and a steady stream each; the delays of the first one."""
    names = [f"steady-{connectors}-{number}" for number in range(connectors)]
    tables = [f"bench.{name}".replace("-", "_") for name in names]
    more = {"iceberg.control.topic": "control", "iceberg.control.commit.interval-ms": "1000"}
    for name, table in zip(names, tables, strict=True):
        running.topic(name, partitions=1)
        running.create(name, connector(name, name, table, **more))
    for name in names:
        running.wait_running(name)
    with contextlib.ExitStack() as streams:
        for name in names[1:]:
            streams.enter_context(SteadyStream().to(running, name))
        with running.measured() as costs:
            seen = delays(running, names[0], tables[0], seconds=QUIET_S, warm_up_s=QUIET_S)
    assert all(running.rows(table) for table in tables)
    for name in names:
        running.delete(name)
    [used] = costs
    return {
        "connectors": connectors,
        "visible_s": [round(statistics.median(seen), 3), round(seen[int(len(seen) * 0.95)], 3)],
        "cpu_percent": {kind: round(100 * s / used.seconds, 1) for kind, s in used.cpu_s.items()},
    }


def _backlogs(running: MeasuredStack, prefix: str, connectors: int) -> dict[str, Any]:
    """Connectors that read the same backlog at the same time, each into a table of its own."""
    names = [f"{prefix}_{number}" for number in range(connectors)]
    with running.measured() as costs:
        for name in names:
            running.create(name, connector(name, "backlog", f"bench.{name}"))
        for name in names:
            wait(lambda table=f"bench.{name}": running.rows(table) >= RECORDS)
    for name in names:
        running.delete(name)
    [used] = costs
    return {
        "connectors": connectors,
        "records_s": round(connectors * RECORDS / used.seconds),
        "worker_cpu": round(used.cpu_s["worker"] / (connectors * RECORDS) * 1e6, 2),
        "worker_mb": used.rss_peak_mb.get("worker"),
    }


def _many_tables(running: MeasuredStack, tables: int, turn: int, mode: str) -> dict[str, Any]:
    """Make the tables with a first record for each, then read a backlog into them."""
    name = f"m{tables}-{turn}-{mode}"
    names = [f"bench.{name}_{number:04d}".replace("-", "_") for number in range(tables)]
    each = TABLE_RECORDS // tables

    def send(records: int) -> None:
        producer = BulkProducer(running.kafka)
        for partition in range(PARTITIONS):
            for start in range(0, records // PARTITIONS, 5_000):
                numbers = range(start, min(start + 5_000, records // PARTITIONS))
                values = [
                    b'{"id":%d,"target":"%s","account":"acct-%07d","amount":%d.25,"currency":"EUR",'
                    b'"merchant":"merchant-%05d","country":"DE","status":"captured",'
                    b'"at":"2026-01-01T00:%02d:00.000Z"}'
                    % (
                        *(n, names[n % tables].encode(), n * 7919 % 100_000),
                        *(n % 997, n % 5_000, n // 60 % 60),
                    )
                    for n in numbers
                ]
                producer.send(name, partition, values)
        producer.finish(name)

    def count(expected: int) -> None:
        for table in names:
            wait(lambda table=table: running.rows(table) >= expected, 0.5)

    running.topic(name)
    more = {"iceberg.tables.dynamic-enabled": "true", "iceberg.tables.route-field": "target"}
    more |= {"iceberg.tables.write-distribution-mode": mode}
    config = connector(name, name, "", **more, **{"iceberg.tables.max-tables": "2000"})
    del config["iceberg.tables"]
    send(tables * PARTITIONS)
    running.create(name, config)
    count(PARTITIONS)
    url = f"{running.stack.rest_url}/connectors/{name}"
    httpx.put(f"{url}/pause", timeout=60).raise_for_status()
    send(TABLE_RECORDS)
    time.sleep(5)
    with running.measured() as costs:
        httpx.put(f"{url}/resume", timeout=60).raise_for_status()
        count(each + PARTITIONS)
    [used] = costs
    heads = [running.catalog.load(t.split(".")).current_snapshot() for t in names]
    summaries = [head.summary for head in heads if head and head.summary]
    running.delete(name)
    return {
        "tables": tables,
        "distribution": mode,
        "records_s": round(TABLE_RECORDS / used.seconds),
        **{
            f"{kind}_cpu": round(used.cpu_s.get(kind, 0) / TABLE_RECORDS * 1e6, 2)
            for kind in ("worker", "coordinator", "broker")
        },
        "worker_mb": used.rss_peak_mb.get("worker"),
        "coordinator_mb": used.rss_peak_mb.get("coordinator"),
        "files": sum(int(summary.get("total-data-files") or 0) for summary in summaries),
        "load": round(os.getloadavg()[0], 1),
    }


def test_many_tables(measurements: dict[str, Any], tmp_path: Path) -> None:
    """A backlog into 1, 50 and 1,000 tables by a route field, in a worker that is warm."""
    with measured_stack(tmp_path) as running:
        _many_tables(running, 1, 0, "none")
        found = [_many_tables(running, n, 1, mode) for n in TABLES for mode in DISTRIBUTIONS]
    for row in found:
        print(row)
    measurements["many_tables"] = found
