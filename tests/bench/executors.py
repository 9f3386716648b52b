"""Speed and CPU time on a Spark standalone cluster with executors of one core each.

Usage: python -m tests.bench.executors [--executors 1,2,4] [--records 8000000]

On a machine with fewer cores than executors, compare CPU time and its spread, not the speed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psutil

from connect.embedded.payments import produce, ranges
from tests.bench.measured_stack import MeasuredStack, connector, measured_stack, wait
from tests.support.spark_cluster import SECRET, StandaloneCluster

PARTITIONS = 8
KINDS = ("worker", "executor", "coordinator", "node")


def measure(folder: Path, executors: int, records: int) -> str:
    """Return the figures of one run in a warm worker, as a line of a Markdown table."""
    with ExitStack() as parts:
        cluster = StandaloneCluster(folder, executors)
        cluster.start_master(parts)
        cluster.start_workers(parts)
        node = {
            "spark.master": cluster.url,
            "spark.authenticate.secret": SECRET,
            "spark.driver.host": "127.0.0.1",
            "spark.cores.max": str(executors),
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
            "icefloe.local.paths.allowed": str(folder),
        }
        running = parts.enter_context(measured_stack(folder / "stack", **node))
        running.topic("pay", PARTITIONS)
        produce(running.kafka, "pay", ranges(records, [0] * PARTITIONS))
        run(running, "warm-up", records)
        with running.measured() as costs:
            before = executor_cpu()
            run(running, "measured", records)
            each = sorted(cpu - before.get(pid, 0) for pid, cpu in executor_cpu().items())
    (cost,) = costs
    per_million = {kind: cost.cpu_s.get(kind, 0) / records * 1e6 for kind in KINDS}
    return (
        f"| {executors} | {records / cost.busy_s(KINDS):,.0f} | {sum(per_million.values()):.2f} "
        f"| {per_million['worker']:.2f} | {per_million['executor']:.2f} "
        f"| {', '.join(f'{cpu:.1f}' for cpu in each)} | {os.getloadavg()[0]:.1f} |"
    )


def run(running: MeasuredStack, name: str, records: int) -> None:
    """Run one connector until all records are in its table."""
    running.create(name, connector(name, "pay", f"bench.{name.replace('-', '_')}"))
    wait(lambda: running.rows(f"bench.{name.replace('-', '_')}") >= records)
    running.delete(name)


def executor_cpu() -> dict[int, float]:
    """Return the CPU seconds of each executor with its Python workers, by process id."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        if any(text.endswith("CoarseGrainedExecutorBackend") for text in process.cmdline()):
            family = [process, *process.children(recursive=True)]
            times = [one.cpu_times() for one in family]
            found[process.pid] = sum(used.user + used.system for used in times)
    return found


def main() -> None:
    """Print a line per number of executors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executors", default="1,2,4")
    parser.add_argument("--records", type=int, default=8_000_000)
    given = parser.parse_args()
    print(
        "| executors | records/s | CPU s per million | driver | executors | CPU s of each "
        "| load |\n|--:|--:|--:|--:|--:|---|--:|"
    )
    for executors in (int(text) for text in given.executors.split(",")):
        with tempfile.TemporaryDirectory(prefix="bench-executors-") as folder:
            print(measure(Path(folder), executors, given.records), flush=True)


if __name__ == "__main__":
    main()
