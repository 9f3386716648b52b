"""A Spark standalone cluster of child processes: a master, and workers with one core each."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import httpx
import pyspark

from connect.gateways.public_trust import public_trust
from connect.jvm.java import find_java
from connect.processes.child_process import ChildProcess, free_port

SECRET = "secret-of-the-cluster"  # all processes of a cluster know it
_SPARK_HOME = Path(pyspark.__file__).parent
_START_TIMEOUT_MS = 120_000


class StandaloneCluster:
    """A master and workers with one core each, whose messages are encrypted.

    Args:
        folder: for logs and work.
        workers: how many.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._page = f"http://127.0.0.1:{free_port()}/json/"
        self._folder = folder
        self._properties = folder / "spark.properties"
        self._properties.write_text(
            f"spark.authenticate true\nspark.authenticate.secret {SECRET}\n"
            "spark.network.crypto.enabled true\n"
        )
        self.work = [folder / f"work-{number}" for number in range(workers)]

    def start_master(self, parts: ExitStack) -> None:
        """Start the master, and wait until it answers."""
        _, _, port = self.url.removeprefix("spark://").partition(":")
        page = self._page.split(":")[2].partition("/")[0]
        master = self._jvm("master", "master.Master", "--port", port, "--webui-port", page)
        parts.callback(master.stop, timeout_ms=10_000)
        master.wait_until(lambda: self._workers() is not None, timeout_ms=_START_TIMEOUT_MS)

    def start_workers(self, parts: ExitStack) -> None:
        """Start the workers, and wait until the master has them."""
        for number, work in enumerate(self.work):
            more = ("--cores", "1", "--memory", "1600m", "--work-dir", str(work))
            worker = self._jvm(f"worker-{number}", "worker.Worker", *more, self.url)
            parts.callback(worker.stop, timeout_ms=10_000)
        worker.wait_until(lambda: self._workers() == len(self.work), timeout_ms=_START_TIMEOUT_MS)

    def executors(self) -> list[int]:
        """Executors that each worker has started."""
        return [len(list(work.glob("app-*/*/"))) for work in self.work]

    def _workers(self) -> int | None:
        try:
            answer = httpx.get(self._page, timeout=60, verify=public_trust())
        except httpx.TransportError:
            return None
        if not answer.is_success:  # the server answers 404 until its pages are attached
            return None
        alive: int = answer.json()["aliveworkers"]
        return alive

    def _jvm(self, name: str, kind: str, *arguments: str) -> ChildProcess:
        command: list[str | Path] = [
            find_java(),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-cp",
            f"{_SPARK_HOME}/jars/*",
            f"org.apache.spark.deploy.{kind}",
            "--host",
            "127.0.0.1",
            "--properties-file",
            str(self._properties),
            *arguments,
        ]
        environ = {
            **os.environ,
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_SCALA_VERSION": "2.13",  # what Spark's own start scripts find out
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        log = self._folder / f"{name}.log"
        return ChildProcess(f"Spark's {name}", command, log_file=log, environ=environ)
