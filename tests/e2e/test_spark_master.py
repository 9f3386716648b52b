"""The worker on a Spark standalone cluster: a master and workers of its own on this machine."""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psutil
import pytest

from connect.embedded.stack import Stack
from tests.support.running_stack import RunningStack, pick
from tests.support.spark_cluster import SECRET, StandaloneCluster
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.matrix]
PARTITIONS = 4
RECORDS = 20_000  # per partition: enough that a read is cut into tasks for all executors
NODE = {
    "spark.authenticate.secret": SECRET,
    "spark.driver.host": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


@pytest.fixture
def parts() -> Iterator[ExitStack]:
    """Stops what a test has started."""
    with ExitStack() as parts:
        yield parts


def waits_of(running: RunningStack, name: str) -> str:
    """Status of a connector as text; it has what a task waits for."""
    return running.api.get(f"/connectors/{name}/status").text


def metrics_of(running: RunningStack) -> str:
    """Metrics of the node, with those of its worker."""
    return running.api.get("/metrics").text


def has_executors(running: RunningStack, count: int) -> bool:
    """Whether the metric of executors has this value."""
    lines = metrics_of(running).splitlines()
    return any(
        line.startswith("icefloe_spark_executors") and float(line.split()[-1]) == count
        for line in lines
    )


def python_archive(folder: Path) -> Path:
    """Return an archive with a Python of its own, as a cluster without Icefloe's image needs it.

    Its program notes each start in the working folder of the executor, and runs this test's Python.
    """
    program = folder / "python"
    program.write_text(f'#!/bin/sh\ntouch from-archive\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(program, "bin/python")
    return archive


@pytest.mark.parametrize("count", [1, 2])
def test_rows_are_written_by_the_executors_of_a_standalone_cluster(
    parts: ExitStack, tmp_path: Path, count: int
) -> None:
    """Spark workers with one executor each; every row is in the table once.

    The workers start late: until then the task says what it waits for. The executors get their
    Python from an archive.
    """
    cluster = StandaloneCluster(tmp_path, count)
    cluster.start_master(parts)
    node = {
        **NODE,
        "spark.master": cluster.url,
        "spark.cores.max": str(count),
        "spark.archives": f"{python_archive(tmp_path)}#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "icefloe.local.paths.allowed": str(tmp_path),
    }
    with (
        Stack(tmp_path / "stack", node_properties=node) as stack,
        closing(RunningStack(stack)) as running,
    ):
        topic = running.topic("standalone", partitions=PARTITIONS)
        local = running.connector(topics=topic, iceberg__tables="far.t")
        local["iceberg.catalog.warehouse"] = "file:///other"
        refused = running.api.put("/connectors/local/config", json=local)
        assert refused.status_code == 400, refused.text
        assert "may run on other machines" in refused.json()["message"]
        for partition in range(PARTITIONS):
            ids = range(partition * RECORDS, (partition + 1) * RECORDS)
            records = ({"id": n, "name": f"n{n}"} for n in ids)
            running.produce(topic, *records, partition=partition)
        name = unique_name("standalone")
        running.table("far.t")
        running.create(name, running.connector(topics=topic, iceberg__tables="far.t"))
        running.wait_until(
            lambda: "an executor: none is registered" in waits_of(running, name),
            lambda: waits_of(running, name),
        )
        running.wait_until(lambda: has_executors(running, 0), lambda: metrics_of(running))
        cluster.start_workers(parts)
        rows = running.rows("far.t", RECORDS * PARTITIONS, name)
        assert pick(rows, "id") == [(n,) for n in range(RECORDS * PARTITIONS)]
        running.produce(topic, {"id": -1, "name": "later"})
        assert pick(running.rows("far.t", RECORDS * PARTITIONS + 1, name), "id")[0] == (-1,)
        each = [1] * count
        running.wait_until(lambda: cluster.executors() == each, lambda: f"{cluster.executors()}")
        running.wait_until(lambda: has_executors(running, count), lambda: metrics_of(running))
        running.wait_until(
            lambda: "an executor" not in waits_of(running, name), lambda: waits_of(running, name)
        )
        notes = [note for work in cluster.work for note in work.glob("app-*/*/from-archive")]
        assert len(notes) == count, "the executors use the Python of the archive"
        for process in psutil.process_iter(["cmdline"]):
            assert SECRET not in " ".join(process.info["cmdline"] or ())
