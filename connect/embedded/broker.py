"""A Kafka broker (KRaft, one node) in a child JVM on the loopback interface.

Rules of this file:
- A broker with an existing state folder continues with its data.
- Temporary files of the JVM (its compression libraries) are in a subfolder of the state folder.
  Each start empties it.
- A ``Broker`` keeps its port across ``stop``, ``kill`` and ``start``.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import UUID

from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.jvm import jars
from connect.jvm.java import find_java
from connect.processes.child_process import (
    ChildProcess,
    DirLock,
    free_port,
    require_free_port,
    writable_dir,
)

START_TIMEOUT_MS = 180_000  # of a machine with other work; a JVM that ends is an error at once
STOP_TIMEOUT_MS = 20_000
PORT_TRIES = 3

_SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.partitions": "4",
    "message.max.bytes": "10485760",
    # one broker allows one replica; few partitions make the start fast
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # short delays, for demos and tests
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "metadata.max.idle.interval.ms": "5000",  # a broker without work takes a fifth less of a core
    # after a crash the broker can register again only when its old session has expired
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
}

_LOGGING = """Configuration:
  Appenders:
    Console: {name: C, PatternLayout: {pattern: '%d %p %c %m%n'}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: C}}
"""


class Broker:
    """A broker that can be started, stopped, killed and paused.

    Args:
        state_dir: folder of its data, log and settings; created if missing.
        port: of the client listener; 0 selects a free port at the first start.
        heap_max_mb: heap limit of the JVM.
        settings: Kafka broker settings that override the default ones.
        cache: jar cache folder, ``jars.cache_dir()`` if None.
        clock: for waiting and the cluster id.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        port: int = 0,
        heap_max_mb: int = 768,
        settings: Mapping[str, str] | None = None,
        cache: Path | None = None,
        clock: SystemClock | None = None,
    ) -> None:
        self._state_dir = state_dir
        self._port_is_fixed = port != 0
        self._port = port
        self._controller_port = 0
        self._heap_max_mb = heap_max_mb
        self._settings = dict(settings or {})
        self._cache = cache
        self._clock = clock or SystemClock()
        self._child: ChildProcess | None = None
        self._lock = DirLock("an embedded broker")

    @property
    def bootstrap_servers(self) -> str:
        """Value for ``bootstrap.servers``; valid after the first start."""
        return f"127.0.0.1:{self._port}"

    @property
    def log_file(self) -> Path:
        """The log file of the JVM."""
        return self._state_dir / "broker.log"

    @property
    def pid(self) -> int | None:
        """Process id of the JVM; None if it is stopped."""
        return self._child.pid if self._child else None

    @property
    def is_running(self) -> bool:
        """Whether the JVM has not ended."""
        return self._child is not None and self._child.is_running

    @property
    def returncode(self) -> int | None:
        """Exit status of a JVM that ended without ``stop``: negative for a signal; else None."""
        return self._child.returncode if self._child else None

    def start(self) -> Self:
        """Start the JVM and return when the broker answers.

        Raises:
            ConfigError: ``java_missing``, ``java_too_old``, ``port_in_use``, ``dir_unwritable``,
                ``state_in_use`` (another broker runs on the folder), ``jars_*``.
            RetriableError: the JVM ended or did not answer; the message has the end of its log.
        """
        if self.is_running:
            return self
        self._state_dir = writable_dir(self._state_dir, name="the embedded broker")
        java: list[str | Path] = [
            find_java(),
            "-Xms128m",
            f"-Xmx{self._heap_max_mb}m",
            "-Xshare:auto",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._state_dir / 'log4j2.yaml'}",
            f"-Djava.io.tmpdir={self._state_dir / 'tmp'}",
            "-cp",
            jars.class_path("kafka", cache=self._cache),
        ]
        (self._state_dir / "log4j2.yaml").write_text(_LOGGING, "utf-8")
        self._lock.acquire(self._state_dir)
        try:
            shutil.rmtree(self._state_dir / "tmp", ignore_errors=True)
            (self._state_dir / "tmp").mkdir()
            self._start(java)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker gracefully; its data is kept."""
        if self._child:
            self._child.stop(timeout_ms=STOP_TIMEOUT_MS)
            self._child = None
        self._lock.release()

    def kill(self) -> None:
        """Kill the JVM immediately, like a crash."""
        if self._child:
            self._child.kill()
            self._child = None
        self._lock.release()

    def pause(self) -> None:
        """Suspend the JVM: connections stay open, requests get no answer."""
        if self._child:
            self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused JVM."""
        if self._child:
            self._child.signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, java: list[str | Path]) -> None:
        for left in range(PORT_TRIES, 0, -1):
            self._choose_ports()
            self._write_settings()
            self._format(java)
            command = [*java, "kafka.Kafka", self._state_dir / "server.properties"]
            self._child = ChildProcess(
                "the embedded broker", command, log_file=self.log_file, clock=self._clock
            )
            try:
                self._child.wait_until(self._answers, timeout_ms=START_TIMEOUT_MS)
            except RetriableError as error:
                self._child.kill()
                if left == 1 or not self._may_try_again(error):
                    raise
            else:
                return

    def _choose_ports(self) -> None:
        if self._port:
            require_free_port(self._port, name="the embedded broker", option="--broker-port")
        else:
            self._port = free_port()
        self._controller_port = free_port()

    def _may_try_again(self, error: RetriableError) -> bool:
        """Return whether the JVM ended because another process took its port before the bind."""
        if "Address already in use" not in error.message:
            return False
        if not self._port_is_fixed:
            self._port = 0
        return True

    def _write_settings(self) -> None:
        listeners = (
            f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}"
        )
        settings = {
            **_SETTINGS,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": str(self._state_dir / "data"),
            **self._settings,
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._state_dir / "server.properties").write_text(text, "utf-8")

    def _format(self, java: list[str | Path]) -> None:
        """Write a new cluster id into an empty data folder."""
        if (self._state_dir / "data" / "meta.properties").exists():
            return
        cluster_id = cluster_id_text(self._clock.new_uuid())
        # C1 only: the process is too short for C2 to be of use
        java_c1 = [java[0], "-XX:TieredStopAtLevel=1", *java[1:]]
        tool = [*java_c1, "kafka.tools.StorageTool", "format", "--cluster-id", cluster_id]
        done = subprocess.run(
            [*tool, "--config", self._state_dir / "server.properties"],
            capture_output=True,
            text=True,
            check=False,
            timeout=START_TIMEOUT_MS / 1000,
        )
        if done.returncode:
            output = (done.stdout + done.stderr)[-2000:]
            raise RetriableError(
                f"the broker's data folder could not be formatted: {output}", code="broker_format"
            )

    def _answers(self) -> bool:
        """Return whether the broker answers a Metadata request and lists itself."""
        try:
            with socket.create_connection(("127.0.0.1", self._port), 0.5) as connection:
                connection.settimeout(2)
                # header v1: api key 3 (Metadata), version 1, correlation 0, no client id;
                # body: an empty list of topics
                body = struct.pack(">hhihi", 3, 1, 0, -1, 0)
                connection.sendall(struct.pack(">i", len(body)) + body)
                answer = connection.recv(os.sysconf("SC_PAGE_SIZE"))
        except OSError:
            return False
        # length, correlation id, then the number of brokers
        return len(answer) >= 12 and struct.unpack(">i", answer[8:12])[0] > 0


def cluster_id_text(identity: UUID) -> str:
    """Return a cluster id in Kafka's form; it never begins with a dash, like an option."""
    text = base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")
    return f"A{text[1:]}" if text.startswith("-") else text
