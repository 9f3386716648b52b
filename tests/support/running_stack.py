"""The running product as users see it: REST API, source topics and tables."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import httpx
import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from connect.embedded.stack import Stack
from tests.support.command_line import icefloe
from tests.support.otlp_collector import OtlpCollector
from tests.support.patient_client import patient_client
from tests.support.processes import arguments
from tests.support.stack import unique_name
from tests.support.stored_layouts import read_layouts

TIMEOUT_S = 400  # the default commit interval, and more, on a machine with other work
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 0.5  # between polls of the node or of a table
INTERVAL_MS = "1000"
CONFIG_TOPIC = "icefloe-configs"
EVENT = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)

Found = TypeVar("Found")
Json = dict[str, Any]


class RunningStack:
    """A running embedded stack, and clients of it.

    Args:
        stack: started.
        statsd: growing list of the metric datagrams that its node sends.
        collector: receives its metrics and traces over OTLP.
        lineage: file to which its lineage events are appended.
    """

    def __init__(
        self,
        stack: Stack,
        statsd: Sequence[str] = (),
        collector: OtlpCollector | None = None,
        lineage: Path | None = None,
    ) -> None:
        self.stack = stack
        self.statsd = statsd
        self.collector = collector
        self.lineage = lineage
        self.api = patient_client(stack.rest_url)
        # silent: the broker ends before these clients do
        self._kafka = {"bootstrap.servers": stack.bootstrap_servers, "log_level": 0}
        self._admin = AdminClient(self._kafka)
        self._producer = Producer(self._kafka)

    def close(self) -> None:
        """Close the clients; the owner of the stack stops it."""
        self._producer.flush(10)
        self.api.close()

    # ------------------------------------------------------------ topics

    def topic(self, prefix: str, partitions: int = 1, **config: str) -> str:
        """Create a topic with a unique name."""
        name = unique_name(prefix)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, replication_factor=1, config=settings)
        self._admin.create_topics([new])[name].result(60)
        self.wait_until(
            lambda: (
                len(self._admin.list_topics(name, timeout=60).topics[name].partitions) == partitions
            ),
            lambda: f"topic {name}",
        )
        return name

    def produce(self, topic: str, *values: Any, partition: int = 0, **more: Any) -> None:
        """Write records and wait for their acknowledgement; values other than bytes become JSON."""
        failed: list[object] = []
        for value in values:
            data = value if isinstance(value, bytes) or value is None else json.dumps(value)
            self._producer.produce(
                topic,
                value=data,
                partition=partition,
                on_delivery=lambda error, _: error and failed.append(error),
                **more,
            )
        assert self._producer.flush(60) == 0
        assert not failed

    def produce_keyed(self, topic: str, records: Iterable[tuple[int, bytes, bytes | None]]) -> None:
        """Write records (partition, key, value), and wait for their acknowledgement."""
        for partition, key, value in records:
            self._producer.produce(topic, value=value, key=key, partition=partition)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0

    def stack_topics(self) -> set[str]:
        """Names of the topics that exist."""
        return set(self._admin.list_topics(timeout=60).topics)

    def records(self, topic: str) -> list[Any]:
        """Return all committed records of a topic, by partition."""
        settings = {"group.id": "reader", "enable.auto.commit": False, "auto.offset.reset": "error"}
        reader = Consumer({**self._kafka, **settings, "log_level": 0})
        records = []
        try:
            known = reader.list_topics(topic, 60).topics[topic].partitions
            for number in sorted(known):
                place = TopicPartition(topic, number)
                position, end = reader.get_watermark_offsets(place, 60)
                reader.assign([TopicPartition(topic, number, position)])
                while position < end:
                    record = reader.poll(0.5)
                    if record is not None:
                        assert record.error() is None
                        records.append(record)
                    position = max(position, reader.position([place])[0].offset)
        finally:
            reader.close()
        return records

    # ------------------------------------------------------------ connectors

    def connector(self, **config: str) -> dict[str, str]:
        """A connector to the embedded catalog; ``__`` for a dot, ``_`` for a dash."""
        embedded = {f"iceberg.catalog.{k}": v for k, v in self.stack.catalog_properties.items()}
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "iceberg.control.commit.interval-ms": INTERVAL_MS,
            **embedded,
            **{k.replace("__", ".").replace("_", "-"): v for k, v in config.items()},
        }

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector; it must be accepted."""
        answer = self.api.post("/connectors", json={"name": name, "config": dict(config)})
        assert answer.status_code == 201, answer.text

    def delete(self, *names: str) -> None:
        """Delete connectors."""
        for name in names:
            answer = self.api.delete(f"/connectors/{name}")
            assert answer.status_code == 204, answer.text

    def request_state(self, name: str, state: str) -> None:
        """Send ``stop``, ``pause`` or ``resume`` for a connector; the node must accept it."""
        assert self.api.put(f"/connectors/{name}/{state}").is_success

    def stop(self, name: str) -> None:
        """Stop a connector, and wait until none of its tasks can write."""
        self.request_state(name, "stop")
        cluster = {"bootstrap.servers": self.stack.bootstrap_servers}

        def has_ended() -> bool:
            layout, ready = read_layouts(cluster, CONFIG_TOPIC, name)
            return layout is not None and layout.tasks == () and ready == layout.number

        self.wait_until(has_ended, lambda: f"the end of {name}")

    def reconfigure(self, name: str, config: Mapping[str, str]) -> None:
        """Change a configuration; no record is read with the old one afterwards.

        The answer to PUT comes before the tasks have ended, as in Kafka Connect.
        """
        self.stop(name)
        assert self.api.put(f"/connectors/{name}/config", json=dict(config)).is_success
        self.request_state(name, "resume")

    def set_offset(self, name: str, place: tuple[str, int], offset: int | None) -> None:
        """Set or reset a source offset of a stopped connector."""
        topic, partition = place
        item = {
            "partition": {"kafka_topic": topic, "kafka_partition": partition},
            "offset": None if offset is None else {"kafka_offset": offset},
        }
        change, body = f"/connectors/{name}/offsets", {"offsets": [item]}
        self.wait_until(lambda: self.api.patch(change, json=body).is_success, lambda: "the offsets")

    def icefloe(self, *arguments: str) -> tuple[int, str]:
        """Run a command against the node; return its exit status and output."""
        done = icefloe(*arguments, "--server", self.stack.rest_url)
        return done.status, done.stdout + done.stderr

    def status(self, name: str) -> Json:
        """Return the status of the connector from the API."""
        body: Json = self.api.get(f"/connectors/{name}/status").json()
        return body

    def trace(self, name: str) -> str:
        """Wait until the connector or a task has failed; return the trace."""

        def inspect() -> str | None:
            status = self.status(name)
            parts = [status["connector"], *status["tasks"]]
            failed = [p for p in parts if p["state"] == "FAILED" and p.get("trace")]
            return str(failed[0]["trace"]) if failed else None

        return self.wait_until(inspect, lambda: f"{name} to fail: {self.status(name)}")

    def wait_until_running(self, name: str, trace: str = "") -> None:
        """Wait until the connector and its tasks run, and one of them shows this text."""

        def inspect() -> bool:
            status = self.status(name)
            parts = [status["connector"], *status["tasks"]]
            return (
                bool(status["tasks"])
                and {part["state"] for part in parts} == {"RUNNING"}
                and any(trace in part.get("trace", "") for part in parts)
            )

        self.wait_until(inspect, lambda: f"{name} to run: {self.status(name)}")

    def counts(self, connector: str) -> Counter[str]:
        """Totals of the node's metrics of a connector, by the metric's name."""
        totals: Counter[str] = Counter()
        lines = self.api.get("/metrics").text.splitlines(keepends=True)
        # those of other connectors take long to parse
        own = (line for line in lines if line[:1] == "#" or f'connector="{connector}"' in line)
        for family in text_string_to_metric_families("".join(own)):
            for sample in family.samples:
                if sample.labels.get("connector") == connector:
                    totals[family.name.removeprefix("icefloe_")] += int(sample.value)
        return totals

    # ------------------------------------------------------------ tables

    @property
    def catalog(self) -> Catalog:
        """The embedded catalog, opened with PyIceberg."""
        return load_catalog("iceberg", **self.stack.catalog_properties)

    def table(self, name: str, catalog: Catalog | None = None, **more: Any) -> Table:
        """Create a table, and its namespace."""
        catalog = catalog or self.catalog
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        return catalog.create_table(name, **{"schema": EVENT, **more})

    def rows(
        self, name: str, count: int, connector: str, catalog: Catalog | None = None
    ) -> list[Json]:
        """Wait until the table has that many rows; return them."""
        opened = catalog or self.catalog

        def inspect() -> bool:
            try:
                snapshot = opened.load_table(name).current_snapshot()
            except NoSuchTableError:
                return False
            summary = snapshot.summary if snapshot else None
            return summary is not None and int(summary["total-records"] or 0) >= count

        self.wait_until(inspect, lambda: f"{count} rows of {name}: {self.status(connector)}")
        rows: list[Json] = opened.load_table(name).scan().to_arrow().to_pylist()
        assert len(rows) == count
        return rows

    # ------------------------------------------------------------ processes

    def processes(self) -> list[tuple[psutil.Process, list[str]]]:
        """Return the node and its descendants, each with its arguments."""
        file = str(self.stack.state_dir / "node.properties")
        children = psutil.Process().children(recursive=True)
        # the first: a process that the node starts has the node's arguments for a moment
        node = next(process for process in children if file in arguments(process))
        processes = [node, *node.children(recursive=True)]
        return [(process, arguments(process)) for process in processes]

    def node_cpu_s(self) -> float:
        """Return the processor time of the node process, which serves the API."""
        spent = self.processes()[0][0].cpu_times()
        return float(spent.user + spent.system)

    def child(self, name: str) -> psutil.Process:
        """The ``worker`` or the ``coordinator`` process."""
        return next(p for p, arguments in self.processes() if arguments[-2:] == ["-m", name])

    def logs(self) -> dict[str, str]:
        """Return the logs of node, children and broker by file."""
        files = [*self.stack.state_dir.glob("*.log"), *self.stack.state_dir.glob("*/*.log*")]
        return {str(file): file.read_text("utf-8", "replace") for file in files}

    def wait_until(self, inspect: Callable[[], Found | None], what: Callable[[], str]) -> Found:
        """Poll until the value is true; return it. Half of the time at most is for the polls.

        The pauses grow: what takes long needs the processor time that polls take.
        """
        deadline, pause_s = time.monotonic() + TIMEOUT_S, FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                value = inspect()
            except (httpx.TransportError, KeyError):  # the node is busy, or starts again
                value = None
            if value:
                return value
            self.stack.check()
            now = time.monotonic()
            assert now < deadline, f"waited too long for {what()}"
            time.sleep(max(pause_s, now - began))
            pause_s = min(1.2 * pause_s, LAST_PAUSE_S)


class ArmedStack(Stack):
    """A stack whose node has failpoints; other processes of the tests have none.

    Args:
        armed: files in it arm failpoints.
        folder: of the stack.
        more: as of ``Stack``.
    """

    def __init__(self, armed: Path, folder: Path, **more: Any) -> None:
        super().__init__(folder, **more)
        self._armed = armed

    @property
    def node_environ(self) -> dict[str, str]:
        """Environment of the stack's node, with the folder of failpoints."""
        return {**super().node_environ, "ICEFLOE_FAILPOINTS_DIR": str(self._armed)}


def coordinator_process(running: RunningStack, name: str) -> psutil.Process:
    """Return the coordinator process of a name; without forks, which have its log for a moment."""
    return next(
        process
        for process, given in running.processes()
        if given[-2:] == ["-m", "coordinator"] and f"{name}.log" in _outputs(process)
    )


def coordinator_of(running: RunningStack, connector: str) -> psutil.Process:
    """Return the coordinator process that runs a connector's coordinator."""
    connectors = running.api.get("/icefloe/v1/overview").json()["connectors"]
    [name] = [each["coordinator_process"] for each in connectors if each["name"] == connector]
    return coordinator_process(running, name)


def _outputs(process: psutil.Process) -> set[str]:
    """Return the names of the files of standard output and error."""
    return {Path(f"/proc/{process.pid}/fd/{n}").readlink().name for n in (1, 2)}


@contextlib.contextmanager
def armed_stack(folder: Path, armed: Path, **more: str) -> Iterator[RunningStack]:
    """Run a stack whose processes a test kills at failpoints.

    Args:
        folder: of the stack.
        armed: files in it arm failpoints of the node's processes.
        more: further properties of the node; ``_`` for a dot.
    """
    properties = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    with (
        ArmedStack(armed, folder, node_properties=properties) as stack,
        contextlib.closing(RunningStack(stack)) as running,
    ):
        yield running


def duckdb_rows(table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table as DuckDB reads them, sorted; nothing is downloaded."""
    return sorted(unsorted_rows(table, *columns))


def unsorted_rows(table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of ``duckdb_rows`` in any order: nulls have none."""
    query = f"select {','.join(columns)} from iceberg_scan('{table.metadata_location}')"
    return _duckdb().execute(query).fetchall()


@functools.cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """Return a connection with DuckDB's reader of Iceberg; it keeps no file between queries."""
    connection = duckdb.connect(
        config={"allow_unsigned_extensions": True, "autoinstall_known_extensions": False}
    )
    for name in ("avro", "iceberg"):
        connection.execute(f"load '{_extension(name)}'")
    connection.execute("set TimeZone = 'UTC'")
    connection.execute("set enable_external_file_cache = false")
    return connection


def numbered(first: int, count: int) -> list[Json]:
    """Records of ``EVENT``, numbered."""
    return [{"id": n, "name": f"n{n}"} for n in range(first, first + count)]


def pick(rows: Iterable[Mapping[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of the rows, sorted."""
    return sorted(tuple(row[column] for column in columns) for row in rows)


def _extension(name: str) -> Path:
    extension = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert extension is not None
    assert extension.origin is not None
    (path,) = Path(extension.origin).parent.glob("**/*.duckdb_extension")
    return path
