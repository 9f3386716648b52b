"""One running stack for all acceptance tests."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.support.entry_points import documented_package
from tests.support.forked_commands import ForkedCommands
from tests.support.otlp_collector import OtlpCollector
from tests.support.processes import still_running
from tests.support.running_stack import ArmedStack, RunningStack

STOP_S = 150
CANARIES = {name: f"canary-{name}-7f3c9e" for name in ("env", "sasl", "inline", "otel")}


@contextmanager
def datagrams() -> Iterator[tuple[str, list[str]]]:
    """An address that takes datagrams, and what has come so far."""
    datagrams: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        host, port = receiver.getsockname()

        def take() -> None:
            while datagram := receiver.recv(65_536):
                datagrams.append(datagram.decode())

        taking = threading.Thread(target=take, daemon=True)
        taking.start()
        yield f"{host}:{port}", datagrams
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", (host, port))
        taking.join(10)


@contextmanager
def collector(environment: pytest.MonkeyPatch) -> Iterator[OtlpCollector]:
    """A collector that the environment names to OpenTelemetry's exporters."""
    collector = OtlpCollector()
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    environment.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-token={CANARIES['otel']}")
    # not more often: each export has all metrics, also while no test needs them
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "5000")
    environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "2000")
    try:
        yield collector
    finally:
        collector.close()


@pytest.fixture(scope="session")
def armed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder; files in it arm failpoints of the processes of ``running``."""
    return tmp_path_factory.mktemp("armed")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory, armed_folder: Path) -> Iterator[RunningStack]:
    """The embedded stack, its node as its user would set it up for schemaless JSON.

    Tests kill its processes, also at failpoints. It has two coordinator processes.
    """
    properties = {
        "icefloe.coordinator.processes": "2",
        "icefloe.validate.remote.ms": "25000",  # what is asked answers late on a busy machine
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        # without SASL at the broker the clients carry it and do not use it
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="user" password="{CANARIES["sasl"]}";'
        ),
    }
    with pytest.MonkeyPatch.context() as environment, datagrams() as (address, taken):
        environment.setenv("ICEFLOE_CATALOG_CANARY", CANARIES["env"])
        package = documented_package(tmp_path_factory.mktemp("package"))
        environment.setenv("PYTHONPATH", str(package), prepend=os.pathsep)
        properties["icefloe.statsd.address"] = address
        properties["icefloe.otel.enabled"] = "true"
        lineage = tmp_path_factory.mktemp("lineage") / "events.jsonl"
        properties["icefloe.lineage.enabled"] = "true"
        properties["icefloe.lineage.interval.ms"] = "1000"
        properties["icefloe.lineage.transport.type"] = "file"
        properties["icefloe.lineage.transport.log_file_path"] = str(lineage)
        with (
            collector(environment) as telemetry,
            ArmedStack(
                armed_folder, tmp_path_factory.mktemp("stack"), node_properties=properties
            ) as stack,
        ):
            running = RunningStack(stack, statsd=taken, collector=telemetry, lineage=lineage)
            with closing(running):
                yield running
            family = [process for process, _ in running.processes()]
            stack.stop()
            assert not still_running(family, STOP_S)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    """The program ``icefloe``, for tests that run many commands as a user does."""
    wide = {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}
    with closing(ForkedCommands(tmp_path_factory.mktemp("commands"), wide)) as made:
        yield made


@pytest.fixture
def armed(armed_folder: Path) -> Iterator[Path]:
    """The folder for failpoints of one test; what a failed test leaves armed is removed."""
    yield armed_folder
    for file in armed_folder.iterdir():
        file.unlink(missing_ok=True)
