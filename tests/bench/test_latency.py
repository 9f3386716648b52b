"""Time from produce to visible by stage, and from creating a connector to its first rows.

Reported, never asserted. ``make bench`` prints it and writes ``build/bench-latency.json``.
``BENCH_LATENCY_S`` is how long the steady stream is measured, after ``BENCH_WARM_UP_S``.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.bench.measured_stack import MeasuredStack, connector, measured_stack
from tests.bench.visibility import WARM_UP_S, SteadyStream, VisibleRows, delays
from tests.support.otlp_collector import OtlpCollector, attributes_of

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3_600)]

SECONDS = float(os.environ.get("BENCH_LATENCY_S", "60"))
CONNECTORS = 5
INTERVAL = {"iceberg.control.commit.interval-ms": "1000"}
REPORT = Path("build/bench-latency.json")
STAGES = {
    "start commit": ("start commit", "start commit"),
    "start commit to answer": ("start commit", "answer"),
    "read": ("read", "read"),
    "read: to the batch": ("read", "write"),
    "read: batch": ("write", "write"),
    "announce": ("announce", "announce"),
    "announce to commit": ("announce", "commit table"),
    "commit": ("commit table", "commit table"),
    "from the read to the commit": ("read", "commit table"),
    "complete": ("complete", "complete"),
}
"""Stage -> the spans where it begins and ends. It begins at the end of another earlier span."""
FROM_START = {"read: to the batch", "from the read to the commit"}


@pytest.fixture(scope="module")
def collector() -> Iterator[OtlpCollector]:
    """Receives the spans of rounds."""
    with pytest.MonkeyPatch.context() as environment:
        collector = OtlpCollector()
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "60000")
        yield collector
        collector.close()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, collector: OtlpCollector
) -> Iterator[MeasuredStack]:
    """One stack that exports traces."""
    folder = tmp_path_factory.mktemp("latency")
    assert collector.url
    with measured_stack(folder, **{"icefloe.otel.enabled": "true"}) as stack:
        yield stack


def test_first_rows(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Seconds from creating a connector to its first rows: the first of a worker, then others."""
    found = []
    for number in range(CONNECTORS):
        name = f"first{number}"
        running.topic(name, 1)
        with (
            SteadyStream().to(running, name),
            closing(VisibleRows(running, f"bench.{name}")) as rows,
        ):
            time.sleep(1)
            began_s = time.monotonic()
            running.create(name, connector(name, name, f"bench.{name}", **INTERVAL))
            found.append(round(rows.wait_for(1) - began_s, 2))
            running.delete(name)
    measurements["first_rows_of_worker_s"] = found[0]
    measurements["first_rows_s"] = found[1:]


def test_stages(
    running: MeasuredStack, collector: OtlpCollector, measurements: dict[str, Any]
) -> None:
    """Time from produce to visible at a 1 s interval, and where it goes."""
    running.topic("steady", 1)
    running.create("steady", connector("steady", "steady", "bench.steady", **INTERVAL))
    running.wait_running("steady")
    settled_ns = time.time_ns() + int(WARM_UP_S * 1e9)
    with running.measured() as used:
        visible = delays(running, "steady", "bench.steady", seconds=SECONDS)
    time.sleep(6)  # the exporter sends spans every 5 s
    running.delete("steady")
    for kind, cpu_s in used[0].cpu_s.items():
        measurements[f"cpu_{kind}_pct"] = round(100 * cpu_s / used[0].seconds, 1)
    spans = [
        span
        for span in collector.spans(icefloe__connector="steady")
        if span.start_time_unix_nano > settled_ns
    ]
    for stage, times in durations(spans).items():
        measurements[f"{stage}, ms p50 / p95"] = f"{percentiles(times, 1)}"
    measurements["visible_ms p50 / p95"] = percentiles([1e3 * d for d in visible], 0)


def durations(spans: Sequence[Any]) -> dict[str, list[float]]:
    """Return the duration of each stage in each round, in milliseconds."""
    rounds: dict[str, dict[str, Any]] = defaultdict(dict)
    for span in spans:
        known = rounds[attributes_of(span)["icefloe.commit_id"]]
        known.setdefault(span.name, span)
    found: dict[str, list[float]] = defaultdict(list)
    for by_name in rounds.values():
        for stage, (first, last) in STAGES.items():
            if {first, last, "write"} <= by_name.keys():
                one, other = by_name[first], by_name[last]
                start, end = one.end_time_unix_nano, other.start_time_unix_nano
                if one is other or stage in FROM_START:
                    start = one.start_time_unix_nano
                if one is other or stage == "from the read to the commit":
                    end = other.end_time_unix_nano
                found[stage].append((end - start) / 1e6)
    return found


def percentiles(values: Sequence[float], digits: int) -> str:
    """Return the 50th and the 95th percentile."""
    ordered = sorted(values)
    p95 = ordered[int(len(ordered) * 0.95)]
    return f"{statistics.median(ordered):.{digits}f} / {p95:.{digits}f}"
