"""The figures of docs/evidence/performance.md.

They are reported, never asserted: machines are noisy.

``make bench`` prints them and writes ``build/bench.json``. ``BENCH_RECORDS`` bounds the long run.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.embedded.payments import produce, ranges
from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.bench.measured_stack import PARTITIONS, MeasuredStack, connector, measured_stack, wait

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3_600)]

RECORDS = int(os.environ.get("BENCH_RECORDS", "10000000"))
WARM_UP = min(RECORDS, 6_000_000)
LATENCY_S = 40
IDLE_S = 40
REPORT = Path("build/bench.json")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredStack]:
    """One stack for all measurements; its JVMs are warm after the first one."""
    start = time.monotonic()
    with measured_stack(tmp_path_factory.mktemp("bench")) as stack:
        stack.started_s = time.monotonic() - start  # type: ignore[attr-defined] # reported once
        yield stack


def _fill(running: MeasuredStack, topic: str, records: int) -> None:
    running.topic(topic)
    produce(running.kafka, topic, ranges(records, [0] * PARTITIONS))


def _run(
    running: MeasuredStack, name: str, topic: str, records: int, **more: str
) -> dict[str, Any]:
    table = f"bench.{name}"
    with running.measured() as costs:
        running.create(name, connector(name, topic, table, **more))
        seconds = wait(lambda: running.rows(table) >= records)
    running.delete(name)
    cost = costs[0]
    return {
        "rows_s": round(records / seconds),
        "seconds": round(seconds, 1),
        "cpu_s_per_mrow": round(cost.cpu_s["worker"] / records * 1e6, 2),
        "cpu_s_per_mrow_all": round(sum(cost.cpu_s.values()) / records * 1e6, 2),
        "peak_rss_mb": cost.rss_peak_mb["worker"],
        "rss_mb_by_quarter": [max(part, default=0) for part in _quarters(list(cost.rss_series_mb))],
        "rows": running.rows(table),
    }


def _quarters(values: list[float]) -> list[list[float]]:
    n = max(1, len(values) // 4)
    return [values[i * n : (i + 1) * n] for i in range(4)]


def test_throughput(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Time from POST to the last visible row: warm, one task, four partitions, 10 s interval."""
    measurements["stack_start_s"] = round(running.started_s, 1)  # type: ignore[attr-defined] # set above
    _fill(running, "warm", WARM_UP)
    measurements["first_run"] = _run(running, "first", "warm", WARM_UP)
    _fill(running, "payments", RECORDS)
    measured = _run(running, "measured", "payments", RECORDS)
    assert measured.pop("rows") == RECORDS
    measurements.update(measured)


def test_latency(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Time from produce to visible at a 1 s interval, 100 records a second."""
    running.topic("steady", 1)
    more = {"iceberg.control.commit.interval-ms": "1000"}
    running.create("steady", connector("steady", "steady", "bench.steady", **more))
    running.wait_running("steady")
    producer = BulkProducer(running.kafka)
    sent_at: list[float] = []
    halt = threading.Event()

    def produce() -> None:
        while not halt.wait(0.01):
            producer.send("steady", 0, [b'{"n":%d}' % len(sent_at)])
            sent_at.append(time.monotonic())

    thread = threading.Thread(target=produce)
    thread.start()
    delays, seen, end = [], 0, time.monotonic() + LATENCY_S
    while time.monotonic() < end:
        now_rows = running.rows("bench.steady")
        now = time.monotonic()
        delays += [(at, now - at) for at in sent_at[seen:now_rows]]
        seen = max(seen, now_rows)
        time.sleep(0.02)
    halt.set()
    thread.join()
    producer.finish("steady")
    running.delete("steady")
    settled = sorted(d for at, d in delays if at > sent_at[0] + 10)
    measurements["visible_p50_s"] = round(statistics.median(settled), 2)
    measurements["visible_p95_s"] = round(settled[int(len(settled) * 0.95)], 2)


def test_idle(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """CPU time of ten connectors without records, minus that of none."""
    time.sleep(5)
    with running.measured() as none:
        time.sleep(IDLE_S)
    names = [f"idle{i}" for i in range(10)]
    for name in names:
        running.topic(name, 1)
        more = {"iceberg.control.commit.interval-ms": "60000", "iceberg.control.topic": "control"}
        running.create(name, connector(name, name, f"bench.{name}", **more))
    for name in names:
        running.wait_running(name)
    time.sleep(10)
    with running.measured() as ten:
        time.sleep(IDLE_S)
    for name in names:
        running.delete(name)
    ours = ("worker", "coordinator", "node")
    used = [sum(c[0].cpu_s.get(k, 0) for k in ours) / c[0].seconds * 100 for c in (none, ten)]
    memory = [sum(c[0].rss_peak_mb.get(k, 0) for k in ours) for c in (none, ten)]
    measurements["idle_none_core_pct"] = round(used[0], 2)
    measurements["idle_core_pct"] = round((used[1] - used[0]) / 10, 2)
    measurements["idle_mb"] = round((memory[1] - memory[0]) / 10, 1)


def test_ten_connectors(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Ten connectors on one node, a tenth of the work each, at the same time."""
    each = max(RECORDS // 50, 10_000)
    names = [f"ten{i}" for i in range(10)]
    for name in names:
        _fill(running, name, each)
    with running.measured() as costs:
        for name in names:
            running.create(name, connector(name, name, f"bench.{name}"))
        seconds = wait(lambda: all(running.rows(f"bench.{n}") >= each for n in names), 0.5)
    for name in names:
        running.delete(name)
    measurements["ten_connectors_rows_s"] = round(10 * each / seconds)
    measurements["ten_connectors_cpu_s_per_mrow"] = round(
        costs[0].cpu_s["worker"] / each / 10 * 1e6, 2
    )


@pytest.mark.parametrize("tables", [1, 50])
def test_fan_out(running: MeasuredStack, measurements: dict[str, Any], tables: int) -> None:
    """One topic to many tables by a route field."""
    records = max(RECORDS // 5, 10_000)
    topic = f"fan{tables}"
    running.topic(topic)
    producer = BulkProducer(running.kafka)
    for partition in range(PARTITIONS):
        for start in range(0, records // PARTITIONS, 5_000):
            numbers = range(start, min(start + 5_000, records // PARTITIONS))
            producer.send(
                topic,
                partition,
                [
                    b'{"id":%d,"kind":"k%02d","account":"acct-%07d","amount":%d.25,"currency":"EUR",'
                    b'"merchant":"merchant-%05d","country":"DE","status":"captured",'
                    b'"at":"2026-01-01T00:%02d:00.000Z"}'
                    % (n, n % tables, n * 7919 % 100_000, n % 997, n % 5_000, n // 60 % 60)
                    for n in numbers
                ],
            )
    producer.finish(topic)
    names = [f"bench.f{tables}_{i:02d}" for i in range(tables)]
    routes = {f"iceberg.table.{n}.route-regex": f"k{i:02d}" for i, n in enumerate(names)}
    more = {"iceberg.tables.route-field": "kind", **routes}
    total = records // PARTITIONS * PARTITIONS
    with running.measured() as costs:
        running.create(topic, connector(topic, topic, ",".join(names), **more))
        seconds = wait(lambda: sum(running.rows(n) for n in names) >= total, 0.5)
    running.delete(topic)
    measurements[f"fan_out_{tables}_rows_s"] = round(total / seconds)
    measurements[f"fan_out_{tables}_cpu_s_per_mrow"] = round(
        costs[0].cpu_s["worker"] / total * 1e6, 2
    )
