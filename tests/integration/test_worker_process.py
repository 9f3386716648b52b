"""``python -m worker`` as a node starts it: over a private pipe, with real tasks."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest
from confluent_kafka import Producer
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.clock import SystemClock
from connect.gateways.catalog.catalog import open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition
from connect.processes.ipc import VERSION, Channel
from connect.records.converters.custom_converters import GROUP
from connect.state.compacted_topic import StorageTopic
from connect.state.config_store import ConfigStore, StoreSettings
from control_schemas.codec import decode, encode
from control_schemas.events import DataComplete, DataWritten, Event, Payload, StartCommit
from tests.support.entry_points import distribution
from tests.support.processes import arguments, still_running
from tests.support.reading import committed_records
from tests.support.stack import Topics
from worker.spark.block_reader import FEW_RECORDS
from worker.task.task_progress import STALLED_MARGIN_MS

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults]
CANARY = "canary-5e1f"
ROUNDS = 4  # no coordinator commits them, and more rounds would stop the task


@dataclass
class Worker:
    """A worker process and what it said."""

    process: subprocess.Popen[bytes]
    channel: Channel
    log: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for message in self.channel.receive():
            self.events.append(message)

    def states(self, connector: str) -> list[str]:
        """States of a connector's task in their order."""
        return [
            e["state"] for e in self.events if e["event"] == "state" and e["connector"] == connector
        ]

    def figure(self, name: str, connector: str) -> float:
        """The last value of a metric of a connector's task, once it is reported."""

        def found() -> list[float]:
            reports = [e["samples"] for e in list(self.events) if e["event"] == "metrics"]
            last = reports[-1] if reports else []
            return [n for m, labels, n in last if (m, labels.get("connector")) == (name, connector)]

        wait_until(lambda: bool(found()))
        return found()[0]

    def children(self) -> list[psutil.Process]:
        """Spark's JVM and Python workers."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self, timeout_s: float = 150) -> int:
        """Wait for the exit; the status."""
        status = self.process.wait(timeout_s)
        self._thread.join(150)
        self.channel.close()
        return status


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@dataclass
class WorkerHarness:
    """Starts worker processes on a broker, a catalog and a config topic."""

    folder: Path
    kafka: dict[str, str]
    catalog: dict[str, str]
    config_topic: str
    control: str
    workers: list[Worker] = field(default_factory=list)
    generations: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.admin = KafkaAdmin(self.kafka)
        self.producer = Producer({**self.kafka, "linger.ms": 0, "log_level": 0})
        self.store = ConfigStore(
            StoreSettings(
                group_id="g",
                worker_id="127.0.0.1:8083",
                config_topic=StorageTopic(self.config_topic, "config.storage.topic"),
                status_topic=StorageTopic("status", "status.storage.topic"),
                reader_properties=self.kafka,
                producer_properties=self.kafka,
            ),
            self.admin,
            SystemClock(),
        )
        self.store.start()
        self.store.lead("127.0.0.1:8083", "http://127.0.0.1:8083")

    def start(
        self,
        *commands: Mapping[str, Any],
        spark: Mapping[str, str] = MappingProxyType({}),
        **environ: str,
    ) -> Worker:
        """Start a worker; without commands, wait until it is ready.

        Args:
            commands: wait in the pipe until the worker takes commands.
            spark: more properties of Spark.
            environ: more variables of the worker's environment.
        """
        ours, theirs = socket.socketpair()
        number = theirs.fileno()
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "worker"],
                pass_fds=[number],
                env={**os.environ, "ICEFLOE_IPC_FD": str(number), **environ},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        theirs.close()
        worker = Worker(process, Channel(ours), log)
        self.workers.append(worker)
        worker.channel.send(
            {
                "op": "configure",
                "version": VERSION,
                "properties": {
                    **self.kafka,
                    "group.id": "g",
                    "config.storage.topic": self.config_topic,
                    "status.storage.topic": "status",
                    "offset.storage.topic": "offsets",
                    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                    "icefloe.state.dir": str(self.folder / "state"),
                    "spark.hadoop.fs.s3a.secret.key": CANARY,
                    "spark.driver.memory": "700m",
                    **spark,
                },
            }
        )
        for command in commands:
            worker.channel.send(command)
        if not commands:
            is_ready = lambda: any(e["event"] == "ready" for e in worker.events)  # noqa: E731
            wait_until(lambda: is_ready() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
        return worker

    def connector(
        self,
        name: str,
        topic: str,
        number: int = 1,
        *,
        changes: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Store the layout of a connector; return the command that starts its only task."""
        config = {
            "name": name,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": topic,
            "iceberg.tables": f"db.{name}",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "iceberg.control.topic": self.control,
            **{f"iceberg.catalog.{k}": v for k, v in self.catalog.items()},
            **changes,
        }
        layout = Layout(name, number, ((TopicPartition(topic, 0),),))
        self.store.put_connector(name, config)
        self.store.put_layout(layout, config)
        self.store.put_ready(layout)
        return {
            "op": "start",
            "connector": name,
            "config": config,
            "layout": layout.to_json(),
            "task": 0,
            "generation": next(self.generations),
        }

    def table(self, name: str) -> None:
        """A table with one column."""
        gateway = open_catalog("iceberg", self.catalog)
        schema = Schema(NestedField(1, "id", LongType(), required=False))
        gateway.create(("db", name), schema)
        gateway.close()

    def produce(self, topic: str, count: int) -> None:
        """Produce records."""
        for i in range(count):
            self.producer.produce(topic, json.dumps({"id": i}))
        self.producer.flush(120)

    def start_commit(self, name: str) -> UUID:
        """Send a StartCommit for a connector; return its id."""
        commit_id = uuid4()
        event = Event(uuid4(), 0, f"connect-{name}", StartCommit(commit_id))
        self.producer.produce(self.control, encode(event))
        self.producer.flush(120)
        return commit_id

    def start_commits_until(self, name: str, topic: str, offset: int) -> None:
        """Send a StartCommit each second, as a coordinator does, until the offset is committed."""
        deadline = time.monotonic() + 150
        while self.offset(name, topic) != offset:
            assert time.monotonic() < deadline
            self.start_commit(name)
            time.sleep(1)

    def reported(self, name: str) -> list[Payload]:
        """Everything on the control topic for a connector so far."""
        records = committed_records(self.kafka, TopicPartition(self.control, 0))
        events = [decode(r.value or b"") for r in records]
        return [e.payload for e in events if e.group_id == f"connect-{name}"]

    def has_answered(self, name: str, commit_id: UUID) -> bool:
        """Whether everything for this StartCommit is announced."""
        return any(
            isinstance(p, DataComplete) and p.commit_id == commit_id for p in self.reported(name)
        )

    def written(self, name: str) -> int:
        """Records of all files announced for a connector so far."""
        return sum(
            file.record_count
            for p in self.reported(name)
            if isinstance(p, DataWritten)
            for file in p.data_files or ()
        )

    def offset(self, name: str, topic: str) -> int | None:
        """Committed source offset of a connector."""
        tp = TopicPartition(topic, 0)
        return self.admin.committed(f"connect-{name}", [tp])[tp]


@pytest.fixture
def harness(
    tmp_path: Path,
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Iterator[WorkerHarness]:
    """Workers on topics of this test; those still alive at the end are killed."""
    harness = WorkerHarness(
        tmp_path,
        kafka_properties,
        sql_catalog_properties,
        topics.create("config", cleanup_policy="compact"),
        topics.create("control"),
    )
    yield harness
    for worker in harness.workers:
        if worker.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.process.pid, signal.SIGKILL)
            worker.end()
    harness.store.close()
    harness.admin.close()


def trace_of(worker: Worker, connector: str) -> Mapping[str, Any]:
    """The FAILED state of a connector."""
    wait_until(lambda: "FAILED" in worker.states(connector))
    return next(e for e in worker.events if e["event"] == "state" and e["state"] == "FAILED")


def jvm_heap(worker: Worker) -> float:
    """Heap in use of Spark's JVM, as last reported; 0 before."""
    reports = [e["samples"] for e in list(worker.events) if e["event"] == "metrics"]
    found = [
        n
        for m, labels, n in (reports or [[]])[-1]
        if m == "jvm_memory_used_bytes" and labels["area"] == "heap"
    ]
    return found[0] if found else 0.0


def test_a_worker_runs_connectors_and_drains_on_sigterm(
    harness: WorkerHarness, topics: Topics
) -> None:
    """Two connectors, one of them broken; pending batches are announced, and the status is 0.

    No secret is among the arguments of any process of it, and none of them is left.
    """
    good, bad = topics.create("good"), topics.create("bad")
    harness.table("good")
    harness.produce(good, 7)
    worker = harness.start(harness.connector("good", good), harness.connector("bad", bad))
    failed = trace_of(worker, "bad")
    assert (failed["code"], failed["task"], failed["layout"]) == ("table_missing", 0, 1)
    assert failed["trace"].splitlines()[0].endswith("[connector=bad, table=db.bad]")
    wait_until(lambda: "RUNNING" in worker.states("good"))
    harness.start_commits_until("good", good, 7)
    assert harness.written("good") == 7
    samples = lambda: {  # noqa: E731 - read again each time
        name: value
        for e in worker.events
        if e["event"] == "metrics"
        for name, labels, value in e["samples"]
        if labels == {"connector": "good", "task": "0"}
    }
    wait_until(lambda: samples().get("records_read") == 7)
    wait_until(lambda: jvm_heap(worker) > 0)
    assert worker.figure("batch_duration_seconds", "good") > 0

    family = [psutil.Process(worker.process.pid), *worker.children()]
    assert any("java" in p.name() for p in family)
    assert not any(CANARY in " ".join(arguments(p)) for p in family)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.end() == 0
    assert worker.states("good")[-1] == "STOPPED"
    assert not still_running(family, 150)
    assert CANARY not in worker.log.read_text()
    logged = [json.loads(line) for line in worker.log.read_text().splitlines() if line[:1] == "{"]
    assert any(line["event"] == "Spark session is ready" for line in logged)
    texts = [line["event"] for line in logged]
    assert texts.index("task starting") < texts.index("Spark session is ready")
    (started,) = (line for line in logged if line["event"] == "task started")
    assert (started["connector"], started["positions"]) == ("good", {f"{good}-0": 0})
    assert not list((harness.folder / "state").glob("icefloe-worker-*"))


def test_a_task_waits_while_spark_does_not_start(harness: WorkerHarness, topics: Topics) -> None:
    """The worker ends, and the task never fails for good: the next worker starts it again."""
    topic = topics.create("no-spark")
    harness.table("no_spark")
    command = harness.connector("no_spark", topic)
    worker = harness.start(command, spark={"spark.driver.memory": "not a size"})
    assert worker.end() != 0
    assert "not a size" in worker.log.read_text()
    assert any(e["event"] == "takes_commands" for e in worker.events)
    assert not any(e["event"] == "ready" for e in worker.events)
    reports = [e for e in worker.events if e["event"] == "state"]
    assert not [e for e in reports if e["state"] == "FAILED" and e["ended"]]


def test_files_of_a_killed_worker_are_removed_by_the_next(harness: WorkerHarness) -> None:
    """Its folder, and the temporary folder of the JVM and Spark."""

    def folders(worker: Worker) -> set[Path]:
        (java,) = [p for p in worker.children() if "java" in p.name()]
        reported = [o for o in arguments(java) if o.startswith("-Djava.io.tmpdir=")]
        scratch = Path(reported[-1].partition("=")[2])
        assert list(scratch.glob("spark-*"))
        return {scratch.parent, *(harness.folder / "state").glob("icefloe-worker-*")}

    first = harness.start()
    left, family = folders(first), first.children()
    os.killpg(first.process.pid, signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    still_running(family, 150)
    assert all(folder.exists() for folder in left)
    second = harness.start()
    own = folders(second)
    assert len(own) == len(left)
    assert not any(folder.exists() for folder in left)
    second.process.send_signal(signal.SIGTERM)
    assert second.end() == 0
    assert not any(folder.exists() for folder in own)


def test_the_end_of_the_node_ends_the_worker(harness: WorkerHarness) -> None:
    """The pipe ends: the worker drains and ends with 0."""
    worker = harness.start()
    worker.channel.close()
    assert worker.process.wait(150) == 0


def test_a_newer_layout_prevents_the_start_of_a_task(
    harness: WorkerHarness, topics: Topics
) -> None:
    """The task ends without reading."""
    topic = topics.create("old")
    harness.table("old")
    worker = harness.start()
    command = harness.connector("old", topic, 1)
    harness.connector("old", topic, 2)
    worker.channel.send(command)
    assert trace_of(worker, "old")["code"] == "layout_superseded"
    assert harness.offset("old", topic) is None


@pytest.mark.parametrize("point", ["W2=crash", "W3=crash", "W4=crash", "W8=crash", "W10=crash"])
def test_a_killed_worker_loses_and_duplicates_no_record(
    harness: WorkerHarness, topics: Topics, point: str
) -> None:
    """Each record is announced once, by the killed worker or by its successor."""
    topic = topics.create("killed")
    harness.table("killed")
    harness.produce(topic, 5)
    first = harness.start(ICEFLOE_FAILPOINTS=point)
    command = harness.connector("killed", topic)
    first.channel.send(command)
    wait_until(lambda: "RUNNING" in first.states("killed"))
    family = first.children()
    harness.start_commit("killed")
    assert first.end() == -signal.SIGKILL
    assert not still_running(family, 150), "Spark's JVM outlived its driver"
    second = harness.start()
    second.channel.send(command)
    wait_until(lambda: "RUNNING" in second.states("killed"))
    harness.start_commits_until("killed", topic, 5)
    last = harness.start_commit("killed")
    wait_until(lambda: harness.has_answered("killed", last))
    assert harness.written("killed") == 5
    second.channel.send({"op": "shutdown", "grace_ms": 30_000})
    assert second.end() == 0


def test_a_killed_python_worker_is_replaced(harness: WorkerHarness, topics: Topics) -> None:
    """Spark retries the batch, and the task does not restart."""
    topic, count = topics.create("forked"), FEW_RECORDS + 1  # fewer need no Python worker
    harness.table("forked")
    worker = harness.start(ICEFLOE_FAILPOINTS="W14=crash@2")
    worker.channel.send(harness.connector("forked", topic))
    wait_until(lambda: "RUNNING" in worker.states("forked"))
    seen: set[psutil.Process] = set()
    for number in range(1, ROUNDS + 1):
        harness.produce(topic, count)
        harness.start_commits_until("forked", topic, count * number)
        seen.update(each for each in worker.children() if "worker.spark.daemon" in arguments(each))
    assert harness.written("forked") == count * ROUNDS
    assert not all(each.is_running() for each in seen)
    wait_until(lambda: worker.figure("batches", "forked") >= ROUNDS)
    assert worker.figure("task_retries", "forked") == 0
    worker.channel.send({"op": "shutdown", "grace_ms": 30_000})
    assert worker.end() == 0


LOOPING = """
def looping(options):
    def convert(data, topic, headers):
        while True:
            pass
    return convert
"""


def test_a_converter_that_never_returns_holds_up_only_its_own_task(
    harness: WorkerHarness, topics: Topics
) -> None:
    """The batch is cancelled in time, its task restarts, and the other connector writes."""
    package = distribution(harness.folder / "package", GROUP, "Looping = own_converters:looping")
    (package / "own_converters.py").write_text(LOOPING)
    good, stuck = topics.create("good"), topics.create("stuck")
    for name, topic in (("healthy", good), ("stuck", stuck)):
        harness.table(name)
        harness.produce(topic, 7)
    changes = {"value.converter": "Looping", "icefloe.batch.timeout.ms": "2000"}
    command = harness.connector("stuck", stuck, changes=changes)
    worker = harness.start(command, PYTHONPATH=str(package))
    wait_until(lambda: "RUNNING" in worker.states("stuck"))
    started = time.monotonic()
    worker.channel.send(harness.connector("healthy", good))
    failed = trace_of(worker, "stuck")
    assert (failed["code"], failed["task"], failed["ended"]) == ("batch_timeout", 0, False)
    assert time.monotonic() - started < 60
    harness.start_commits_until("healthy", good, 7)
    assert harness.written("healthy") == 7
    assert harness.written("stuck") == 0
    wait_until(lambda: worker.figure("batch_timeouts", "stuck") >= 1)
    idle = [
        item["idle_ms_max"]
        for e in worker.events
        if e["event"] == "inventory"
        for item in e["units"]
        if item["connector"] == "stuck"
    ]
    assert set(idle) == {2_000 + STALLED_MARGIN_MS}
    worker.channel.send({"op": "shutdown", "grace_ms": 30_000})
    assert worker.end() == 0
