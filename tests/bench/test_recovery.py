"""Time without new rows after a kill, by process; reported, never asserted.

``make bench`` prints it and writes ``build/bench-recovery.json``. ``BENCH_KILLS`` is how often each
process is killed, and ``BENCH_VICTIMS`` names them.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from connect.gateways.kafka.bulk_producer import BulkProducer
from tests.bench.measured_stack import MeasuredStack, connector, measured_stack, wait
from tests.support.processes import arguments

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3_600)]

KILLS = int(os.environ.get("BENCH_KILLS", "3"))
VICTIMS = os.environ.get("BENCH_VICTIMS", "coordinator,worker,node").split(",")
CHILDREN = ("coordinator", "worker")
STEADY_S = 5
TABLE = "bench.recovery"
REPORT = Path("build/bench-recovery.json")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeasuredStack]:
    """One stack with one connector with a commit interval of 1 s."""
    with measured_stack(tmp_path_factory.mktemp("recovery")) as stack:
        stack.topic("recovery", 1)
        more = {"iceberg.control.commit.interval-ms": "1000"}
        stack.create("recovery", connector("recovery", "recovery", TABLE, **more))
        stack.wait_running("recovery")
        yield stack


def test_recovery(running: MeasuredStack, measurements: dict[str, Any]) -> None:
    """Seconds from SIGKILL until the table has a row that was produced after it."""
    with records_produced(running):
        wait(lambda: running.rows(TABLE) > 0)
        for victim in VICTIMS:
            kills = [kill(running, victim) for _ in range(KILLS)]
            for name in kills[0]:
                values = [found[name] for found in kills]
                measurements[f"{victim}_{name}"] = round(statistics.median(values), 1)
                measurements[f"{victim}_{name}_max"] = round(max(values), 1)


@contextmanager
def records_produced(running: MeasuredStack) -> Iterator[None]:
    """Produce 100 records a second while the block runs."""
    producer, halt = BulkProducer(running.kafka), threading.Event()

    def produce() -> None:
        while not halt.wait(0.01):
            producer.send("recovery", 0, [b'{"n":1}'])

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        halt.set()
        thread.join()
        producer.finish("recovery")


def kill(running: MeasuredStack, victim: str) -> dict[str, float]:
    """Kill a process; return seconds and CPU seconds until the table gets new rows."""
    before = running.rows(TABLE)
    wait(lambda: running.rows(TABLE) > before)
    time.sleep(STEADY_S)
    began, began_s = time.time(), time.monotonic()
    kill_process(running, victim)
    ready_s = wait_ready(running, began_s)
    seen = running.rows(TABLE)  # with the rows that the victim committed
    wait(lambda: running.rows(TABLE) > seen, 0.05)
    rows_s = time.monotonic() - began_s
    found = {"ready_s": ready_s, "rows_s": rows_s, "cpu_s": cpu_since(running, began)}
    print(f"{victim}: {found}, load {os.getloadavg()[0]:.1f}", flush=True)
    return found


def cpu_since(running: MeasuredStack, began: float) -> float:
    """Return CPU seconds of the node's processes that started since then (epoch seconds)."""
    node = running.stack._node
    assert node is not None
    parent = psutil.Process(node.pid)
    used_s = 0.0
    for process in (parent, *parent.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            if process.create_time() >= began:
                times = process.cpu_times()
                used_s += times.user + times.system
    return used_s


def kill_process(running: MeasuredStack, victim: str) -> None:
    """Send SIGKILL; restart the node; it restarts its children."""
    stack = running.stack
    node = stack._node
    assert node is not None
    if victim == "node":
        node.kill()
        stack.start_node()
        return
    for child in psutil.Process(node.pid).children():
        if arguments(child)[-2:] == ["-m", victim]:
            child.kill()


def wait_ready(running: MeasuredStack, began_s: float) -> float:
    """Return the seconds until both children are ready again."""
    time.sleep(0.5)  # the node detects the end of a child at once

    def is_ready() -> bool:
        try:
            text = httpx.get(f"{running.stack.rest_url}/metrics", timeout=5).text
        except httpx.TransportError:
            return False
        return all(f'icefloe_child_up{{process="{name}"}} 1.0' in text for name in CHILDREN)

    wait(is_ready, 0.1)
    return time.monotonic() - began_s
