"""Effect of API requests on the data path. Figures are reported, never asserted.

Runs with and without requests follow each other in turn, so that a machine which others use shows
in both. ``BENCH_RECORDS`` bounds the backlog, ``BENCH_REQUESTS`` is the rate.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connect.embedded.payments import produce, ranges
from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.bench.measured_stack import PARTITIONS, MeasuredStack, connector, measured_stack, wait

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3_600)]

RATE = int(os.environ.get("BENCH_REQUESTS", "1000"))
BACKLOG = min(int(os.environ.get("BENCH_RECORDS", "10000000")), 4_000_000)
PAIRS = int(os.environ.get("BENCH_PAIRS", "2"))
STEADY_S = 25
SETTLING_S = 5
ROWS_EVERY_10_MS = 20
AT_MOST_S = 8
REPORT = Path("build/bench-requests.json")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredStack]:
    """One stack for all measurements."""
    with measured_stack(tmp_path_factory.mktemp("requests")) as stack:
        yield stack


@contextmanager
def requests(
    running: MeasuredStack, name: str, rate: float, seconds: float
) -> Iterator[dict[str, Any]]:
    """Send requests from another process during the block; their times are added after it."""
    command = [
        *(sys.executable, "-m", "tests.bench.request_load", running.stack.rest_url, name),
        *("--rate", str(rate), "--seconds", str(seconds)),
    ]
    figures: dict[str, Any] = {}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield figures
        out, _ = process.communicate(timeout=seconds + 60)
        figures.update(json.loads(out))
    finally:
        process.kill()
        process.wait()


@contextmanager
def _no_requests(*_: object) -> Iterator[dict[str, Any]]:
    yield {}


def test_most_requests(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Requests per second that one node answers without other work."""
    running.topic("idle", 1)
    running.create("idle", connector("idle", "idle", "bench.idle"))
    running.wait_running("idle")
    with requests(running, "idle", 0, 3):
        pass  # warm
    with running.measured() as costs, requests(running, "idle", 0, AT_MOST_S) as reported:
        pass
    running.delete("idle")
    answered = reported["requests_s"] * AT_MOST_S
    measurements["most"] = reported
    measurements["node_cpu_ms_per_request"] = round(costs[0].cpu_s["node"] / answered * 1000, 3)


def test_backlog(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Rows per second of a backlog, warm, alternately without and with requests."""
    running.topic("backlog")
    produce(running.kafka, "backlog", ranges(BACKLOG, [0] * PARTITIONS))
    _backlog_run(running, "warm", is_asked=False)
    for turn in range(PAIRS):
        for is_asked in (False, True):
            reported = _backlog_run(running, f"b{turn}{'asked' if is_asked else 'quiet'}", is_asked)
            measurements[f"backlog_{turn}_{'asked' if is_asked else 'quiet'}"] = reported


def _backlog_run(running: MeasuredStack, name: str, is_asked: bool) -> dict[str, Any]:
    table = f"bench.{name}"
    asking = requests if is_asked else _no_requests
    running.create(name, connector(name, "backlog", table))
    with running.measured() as costs, asking(running, name, RATE, 30) as reported:
        seconds = wait(lambda: running.rows(table) >= BACKLOG)
    running.delete(name)
    return {
        "rows_s": round(BACKLOG / seconds),
        "worker_cpu_s_per_mrow": round(costs[0].cpu_s["worker"] / BACKLOG * 1e6, 2),
        "node_cores": round(costs[0].cpu_s["node"] / costs[0].seconds, 2),
        **reported,
    }


def test_visibility(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Time from produce to visible at a 1 s interval, without and with requests."""
    running.topic("steady")
    more = {"iceberg.control.commit.interval-ms": "1000"}
    running.create("steady", connector("steady", "steady", "bench.steady", **more))
    running.wait_running("steady")
    feed = _RecordStream(running)
    feed.start()
    wait(lambda: running.rows("bench.steady") > 0)
    time.sleep(SETTLING_S)
    for turn in range(PAIRS):
        for kind, asking in (("quiet", _no_requests), ("asked", requests)):
            with asking(running, "steady", RATE, STEADY_S) as reported:
                seen = feed.watched(STEADY_S)
            measurements[f"visible_{turn}_{kind}"] = {**seen, **reported}
    feed.stop()
    running.delete("steady")


class _RecordStream:
    """Produces records at a steady rate and measures when they are visible."""

    def __init__(self, running: MeasuredStack) -> None:
        self._running = running
        self._sent: list[tuple[float, int]] = []  # time, and number of records sent by then
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._feed)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._halt.set()
        self._thread.join()

    def _feed(self) -> None:
        producer, count = BulkProducer(self._running.kafka), 0
        while not self._halt.wait(0.01):
            values = [
                b'{"n":%d,"name":"steady"}' % n for n in range(count, count + ROWS_EVERY_10_MS)
            ]
            producer.send("steady", count // ROWS_EVERY_10_MS % PARTITIONS, values)
            count += len(values)
            self._sent.append((time.monotonic(), count))
        producer.finish("steady")

    def watched(self, seconds: float) -> dict[str, Any]:
        """Return delays and rows of a time span."""
        start = time.monotonic()
        first = before = self._running.rows("bench.steady")
        delays: list[float] = []
        while time.monotonic() < start + seconds:
            rows, now = self._running.rows("bench.steady"), time.monotonic()
            delays += [now - at for at, count in self._sent if before < count <= rows]
            before = rows
            time.sleep(0.05)
        ordered = sorted(delays) or [0.0]
        return {
            "rows_s": round((before - first) / seconds),
            "visible_p50_s": round(statistics.median(ordered), 2),
            "visible_p95_s": round(ordered[int(len(ordered) * 0.95)], 2),
        }
