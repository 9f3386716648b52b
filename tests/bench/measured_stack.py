"""A running stack with connectors, and the CPU time and memory of its processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from connect.embedded.stack import Stack
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition

WAIT_S = 600.0
PARTITIONS = 4
_MODULES = {"worker": "worker", "coordinator": "coordinator", "node": "connect.node"}
_PROGRAMS = {
    "broker": "kafka.Kafka",
    "catalog": "RestCatalog",
    "java": "org.apache.kafka.connect.cli.ConnectDistributed",
    "executor": "org.apache.spark.executor.CoarseGrainedExecutorBackend",
}


def connector(name: str, topic: str, tables: str, **more: str) -> dict[str, str]:
    """Configuration of a measured connector: JSON payments, auto-created unpartitioned tables."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "1",
        "topics": topic,
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "iceberg.tables": tables,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": f"control-{name}",
        "iceberg.control.commit.interval-ms": "10000",
        "iceberg.catalog": "bench",
        "iceberg.catalog.type": "sql",
        "iceberg.catalog.uri": "${env:ICEFLOE_CATALOG_URI}",
        "iceberg.catalog.warehouse": "${env:ICEFLOE_CATALOG_WAREHOUSE}",
        **more,
    }


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """CPU time and memory of processes over a time span.

    Attributes:
        seconds: how long the span was.
        cpu_s: CPU seconds by kind of process.
        rss_peak_mb: most memory by kind of process.
        rss_series_mb: memory of the worker over time.
        cpu_series_s: CPU seconds since the start by kind of process, with the seconds since the
            start.
    """

    seconds: float
    cpu_s: Mapping[str, float]
    rss_peak_mb: Mapping[str, float]
    rss_series_mb: tuple[float, ...]
    cpu_series_s: tuple[tuple[float, Mapping[str, float]], ...]

    def busy_s(self, kinds: Collection[str]) -> float:
        """Return the seconds after which these kinds had used 98 % of their CPU time.

        So the wait for the last commit interval does not count.
        """
        used = [(at, sum(cpu.get(kind, 0) for kind in kinds)) for at, cpu in self.cpu_series_s]
        total = sum(self.cpu_s.get(kind, 0) for kind in kinds)
        return next((at for at, cpu_s in used if cpu_s >= 0.98 * total), self.seconds)


class MeasuredStack:
    """Connectors on a started stack.

    Args:
        stack: started.
    """

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.kafka = {"bootstrap.servers": stack.bootstrap_servers}
        self.admin = KafkaAdmin(self.kafka)
        self.catalog: CatalogGateway = open_catalog("bench", stack.catalog_properties)

    def topic(self, name: str, partitions: int = PARTITIONS) -> None:
        """Create a topic and wait until its partitions have leaders."""
        self.admin.ensure_topic(name, partitions)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                self.admin.ends([TopicPartition(name, p) for p in range(partitions)])
            except Exception:
                time.sleep(0.1)
            else:
                return

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector through REST."""
        answer = httpx.post(
            f"{self.stack.rest_url}/connectors", json={"name": name, "config": config}, timeout=30
        )
        assert answer.status_code == 201, answer.text

    def delete(self, name: str) -> None:
        """Delete a connector."""
        httpx.delete(f"{self.stack.rest_url}/connectors/{name}", timeout=60)

    def wait_running(self, name: str) -> None:
        """Wait until its tasks run."""

        def is_running() -> bool:
            status = httpx.get(f"{self.stack.rest_url}/connectors/{name}/status", timeout=30).json()
            states = [t["state"] for t in status.get("tasks", [])]
            assert "FAILED" not in states, status
            return bool(states) and set(states) == {"RUNNING"}

        wait(is_running, 0.1)

    def rows(self, table: str) -> int:
        """Return ``total-records`` of the current snapshot; 0 without a snapshot."""
        identifier = tuple(table.split("."))
        if not self.catalog.exists(identifier):
            return 0
        head = self.catalog.load(identifier).metadata.current_snapshot()
        return int(head.summary.get("total-records") or 0) if head and head.summary else 0

    def held(self) -> dict[str, float]:
        """Return threads, file handles and memory (MB) of node, worker and coordinator."""
        parts = ("node", "worker", "coordinator")
        found = [p for kind, trees in _trees().items() if kind in parts for p in trees]
        return {
            "threads": sum(process.num_threads() for process in found),
            "handles": sum(process.num_fds() for process in found),
            "memory_mb": round(sum(_rss(process) for process in found) / 2**20),
        }

    @contextmanager
    def measured(self, every_s: float = 0.25) -> Iterator[list[ResourceUse]]:
        """Measure CPU and peak memory of the stack over the block; add them to the list."""
        out: list[ResourceUse] = []
        halt = threading.Event()
        peaks: dict[str, float] = {}
        series: list[float] = []
        cpu_series: list[tuple[float, dict[str, float]]] = []
        before, start = _cpu(), time.monotonic()

        def sample() -> None:
            while not halt.wait(every_s):
                cpu_s = {}
                for kind, found in _trees().items():
                    mb = sum(_rss(p) for p in found) / 2**20
                    peaks[kind] = max(peaks.get(kind, 0), mb)
                    cpu_s[kind] = sum(_cpu_s(p) for p in found) - before.get(kind, 0)
                    if kind == "worker":
                        series.append(round(mb))
                cpu_series.append((time.monotonic() - start, cpu_s))

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield out
        finally:
            halt.set()
            thread.join()
            after = _cpu()
            used = {k: round(after[k] - before.get(k, 0), 2) for k in after}
            rounded = {k: round(v) for k, v in peaks.items()}
            seconds = time.monotonic() - start
            out.append(ResourceUse(seconds, used, rounded, tuple(series), tuple(cpu_series)))


def wait(condition: Any, every_s: float = 0.2, limit_s: float = WAIT_S) -> float:
    """Poll until the condition is true; return the seconds waited."""
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        if condition():
            return time.monotonic() - start
        time.sleep(every_s)
    raise TimeoutError


@contextmanager
def measured_stack(folder: Path, **node: str) -> Iterator[MeasuredStack]:
    """Run a stack in a new folder."""
    with Stack(folder, node_properties=node) as stack:
        yield MeasuredStack(stack)


def _trees() -> dict[str, list[psutil.Process]]:
    """Return the processes of the stack by kind, with all descendants."""
    me = psutil.Process()
    out: dict[str, list[psutil.Process]] = {}
    for process in me.children(recursive=True):
        try:
            line = process.cmdline()
            for kind, module in _MODULES.items():
                if "-m" in line and module in line:
                    below = [] if kind == "node" else process.children(recursive=True)
                    out.setdefault(kind, []).extend([process, *below])
            for kind, program in _PROGRAMS.items():
                if any(argument.endswith(program) for argument in line):
                    below = process.children(recursive=True) if kind == "executor" else []
                    out.setdefault(kind, []).extend([process, *below])
        except psutil.Error:
            continue
    return out


def _cpu() -> dict[str, float]:
    return {kind: sum(_cpu_s(p) for p in found) for kind, found in _trees().items()}


def _cpu_s(process: psutil.Process) -> float:
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    is_python = "python" in process.name()
    return (
        used.user + used.system + ((used.children_user + used.children_system) if is_python else 0)
    )


def _rss(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss)
    except psutil.Error:
        return 0.0
