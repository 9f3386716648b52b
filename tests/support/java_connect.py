"""Kafka Connect in a JVM: one distributed worker, by default with the Apache Iceberg sink.

Rules of this file:
- It has no part of Icefloe: its input is the JSON of a connector, its output are tables.
- The plug-in lies in a folder of its own below ``plugin.path``; with its jars directly in it every
  jar becomes a plug-in, and the sink finds none of its classes.
- A short ``offset.flush.interval.ms``: the sink polls the control topic only when it is given
  records or asked for offsets, so the worker's default lets an idle task answer after a minute.
"""

from __future__ import annotations

import signal
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from connect.gateways.public_trust import public_trust
from connect.jvm import jars
from connect.jvm.java import find_java
from connect.processes.child_process import ChildProcess, free_port

START_TIMEOUT_MS = 180_000
STOP_TIMEOUT_MS = 30_000
WAIT_S = 180
_LOGGING = """rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c %m%n
"""


class JavaConnect:
    """One distributed worker; it can be stopped, killed and started again.

    Args:
        state_dir: for its settings and log.
        bootstrap_servers: the cluster; it must let clients create topics by request.
        name: of its group; workers of one group share connectors and offsets.
        heap_max_mb: the JVM's heap limit.
        plugins: jar groups with connectors.
        converters: further converters, each a plug-in of its own: class by jar group.
        jvm_options: of the JVM.
    """

    def __init__(
        self,
        state_dir: Path,
        bootstrap_servers: str,
        *,
        name: str = "java",
        heap_max_mb: int = 768,
        plugins: Sequence[str] = ("java-sink",),
        converters: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = ("-XX:+UseG1GC",),
    ) -> None:
        self.state_dir = state_dir
        self._name = name
        self.port = free_port()
        self._bootstrap_servers = bootstrap_servers
        self._heap_max_mb = heap_max_mb
        self._plugins = plugins
        self._converters = dict(converters or {})
        self._jvm_options = jvm_options
        self._child: ChildProcess | None = None
        url = f"http://127.0.0.1:{self.port}"
        self.api = httpx.Client(base_url=url, timeout=60, verify=public_trust())

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        assert self._child is not None
        return self._child.pid

    def start(self) -> None:
        """Start it and wait until it accepts connectors."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        plugins = self.state_dir / "plugins"
        plugins.mkdir(exist_ok=True)
        for group in self._plugins:
            if not (plugins / group).exists():
                (plugins / group).symlink_to(jars.resolve(group)[0].parent)
        for group, class_name in self._converters.items():
            _install_converter(plugins / group, group, class_name)
        logging = self.state_dir / "log4j2.properties"
        logging.write_text(_LOGGING, "utf-8")
        settings = self.state_dir / "worker.properties"
        lines = self._settings(plugins).items()
        settings.write_text("".join(f"{key}={value}\n" for key, value in lines), "utf-8")
        command: list[str | Path] = [
            *(find_java(), "-Xms128m", f"-Xmx{self._heap_max_mb}m", *self._jvm_options),
            f"-Dlog4j2.configurationFile={logging}",
            f"-Djava.io.tmpdir={self.state_dir}",
            *("-cp", jars.class_path("java-connect")),
            *("org.apache.kafka.connect.cli.ConnectDistributed", settings),
        ]
        self._child = ChildProcess(
            "the Java worker", command, log_file=self.state_dir / "java-connect.log"
        )
        self._child.wait_until(self._lists_connectors, timeout_ms=START_TIMEOUT_MS)

    def stop(self) -> None:
        """Stop it; its tasks leave their groups."""
        if self._child is not None:
            self._child.stop(timeout_ms=STOP_TIMEOUT_MS)

    def kill(self) -> None:
        """Kill it, as a crash does."""
        if self._child is not None:
            self._child.kill()

    def pause(self) -> None:
        """Pause the process."""
        if self._child is not None:
            self._child.signal(signal.SIGSTOP)

    def unpause(self) -> None:
        """Continue the processes after ``pause``."""
        if self._child is not None:
            self._child.signal(signal.SIGCONT)

    def close(self) -> None:
        """Kill the worker in any state, and close the client."""
        self.kill()
        self.api.close()

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector and wait until all its tasks run."""

        def is_created() -> bool:
            answer = self.api.post("/connectors", json={"name": name, "config": dict(config)})
            assert answer.status_code == 201 or answer.status_code >= 409, answer.text
            return answer.status_code == 201  # 409 and 5xx while it has only just come up

        self.wait_until(is_created, lambda: f"{name} to be created")
        self.wait_running(name)

    def wait_running(self, name: str) -> None:
        """Wait until all tasks of a connector run."""

        def is_running() -> bool:
            tasks = self.status(name).get("tasks") or [{"state": "none"}]
            return {task["state"] for task in tasks} == {"RUNNING"}

        self.wait_until(is_running, lambda: f"{name} to run: {self.status(name)}")

    def stop_connector(self, name: str) -> None:
        """``PUT /stop``, and wait until no task is left."""
        assert self.api.put(f"/connectors/{name}/stop").status_code == 204

        def is_stopped() -> bool:
            status = self.status(name)
            return status["connector"]["state"] == "STOPPED" and not status["tasks"]

        self.wait_until(is_stopped, lambda: f"{name} to stop: {self.status(name)}")

    def resume(self, name: str) -> None:
        """Resume a stopped connector."""
        assert self.api.put(f"/connectors/{name}/resume").status_code == 202
        self.wait_running(name)

    def delete(self, name: str) -> None:
        """Delete a connector."""
        assert self.api.delete(f"/connectors/{name}").status_code == 204

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of the connector."""
        body: dict[str, Any] = self.api.get(f"/connectors/{name}/status").json()
        return body

    def wait_until(self, is_so: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until the condition is true."""
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert self._child is not None
            assert self._child.is_running, self._child.tail()
            assert time.monotonic() < deadline, f"waited too long for {what()}"
            time.sleep(0.2)

    def _lists_connectors(self) -> bool:
        """Return whether it serves its API; earlier it answers with an HTML page."""
        try:
            return self.api.get("/connectors").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _settings(self, plugins: Path) -> dict[str, str]:
        stores = {
            f"{kind}.storage.{key}": value
            for kind in ("config", "offset", "status")
            for key, value in (("topic", f"{self._name}-{kind}s"), ("replication.factor", "1"))
        }
        return {
            "bootstrap.servers": self._bootstrap_servers,
            "group.id": f"{self._name}-connect",
            "listeners": f"http://127.0.0.1:{self.port}",
            "rest.advertised.host.name": "127.0.0.1",
            "plugin.path": str(plugins),
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            **stores,
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "connector.client.config.override.policy": "All",
        }


def _install_converter(folder: Path, group: str, class_name: str) -> None:
    """Make a plug-in of a jar group, with the service file that its converter may lack."""
    if folder.exists():
        return
    folder.mkdir()
    for jar in jars.resolve(group):
        (folder / jar.name).symlink_to(jar)
    with zipfile.ZipFile(folder / "service.jar", "w") as service:
        service.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", class_name)
