"""Project Nessie, a catalog with branches, in a JVM of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from connect.jvm import jars
from connect.jvm.java import _major_version, find_java
from connect.processes.child_process import ChildProcess, free_port
from tests.support.object_stores import S3_SECRET, S3Proxy
from tests.support.stack import STOP_TIMEOUT_MS, answers

JAVA_VERSION = 21
START_MS = 300_000  # it is large, and the machine may be busy
_INSTALLED = Path("/usr/lib/jvm")


def newer_java() -> Path:
    """A Java that Nessie runs on; skips the test where none is installed."""
    for program in (find_java(), *sorted(_INSTALLED.glob("*/bin/java"))):
        if os.access(program, os.X_OK) and _major_version(program) >= JAVA_VERSION:
            return program
    pytest.skip(f"Nessie needs Java {JAVA_VERSION} or newer")


class Nessie:
    """Nessie with its state in memory and its tables in an S3 store.

    Args:
        folder: for its log.
        store: of the tables.
    """

    def __init__(self, folder: Path, store: S3Proxy) -> None:
        self.port = free_port()
        self._folder = folder
        self._store = store
        self._child: ChildProcess | None = None

    @property
    def properties(self) -> dict[str, str]:
        """Catalog properties as they follow ``iceberg.catalog.``."""
        address = f"http://127.0.0.1:{self.port}/iceberg/main"
        return {"type": "rest", "uri": address, "warehouse": "warehouse", **self._store.properties}

    def start(self) -> None:
        """Start it and wait until it answers."""
        (jar,) = jars.resolve("nessie")
        secret, bucket = "store-secrets.s3", "nessie.catalog.service.s3.default-options"
        settings = {
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": self.port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": free_port(),
            "quarkus.otel.sdk.disabled": "true",
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.server.authentication.enabled": "false",
            "nessie.catalog.default-warehouse": "warehouse",
            "nessie.catalog.warehouses.warehouse.location": self._store.warehouse,
            f"{bucket}.endpoint": self._store.endpoint,
            f"{bucket}.region": "us-east-1",
            f"{bucket}.path-style-access": "true",
            f"{bucket}.request-signing-enabled": "false",
            f"{bucket}.access-key": f"urn:nessie-secret:quarkus:{secret}",
            f"{secret}.name": "local",
            f"{secret}.secret": S3_SECRET,
        }
        command = [
            *(newer_java(), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-D{key}={value}" for key, value in settings.items()),
            *("-jar", jar),
        ]
        self._child = ChildProcess("Nessie", command, log_file=self._folder / "nessie.log")
        config = f"{self.properties['uri']}/v1/config"
        self._child.wait_until(lambda: answers(config), timeout_ms=START_MS)

    def stop(self) -> None:
        """Stop it."""
        if self._child:
            self._child.stop(timeout_ms=STOP_TIMEOUT_MS)
