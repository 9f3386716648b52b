"""Time without new rows after the last member of the Java sink left; reported, never asserted.

``make bench`` prints it and writes ``build/bench-take-over.json``. The connector is created on the
node while the Java sink still runs: its tasks wait until the sink's groups have no member.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from connect.embedded.stack import Stack
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.bench.measured_stack import wait
from tests.support.java_connect import JavaConnect
from tests.support.moving import NUMBERED, SourceTopic, connector, wait_rows
from tests.support.running_stack import RunningStack
from tests.support.stack import RestCatalog

pytestmark = [pytest.mark.bench, pytest.mark.java, pytest.mark.timeout(1_800)]

REPORT = Path("build/bench-take-over.json")
POLL_S = 0.05
JSON = {  # the converter of the Java sink's worker
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def test_take_over(tmp_path: Path, measurements: dict[str, Any]) -> None:
    """Seconds from the end of its last member until the table has a row of Icefloe."""
    store = RestCatalog(tmp_path / "store")
    store.start()
    try:
        with Stack(tmp_path / "stack", node_properties=JSON) as stack:
            running = RunningStack(stack)
            for how in ("stopped", "killed"):
                java = JavaConnect(tmp_path / how, stack.bootstrap_servers, name=how)
                try:
                    java.start()
                    measurements[f"{how}_rows_s"] = round(take_over(running, java, store, how), 1)
                finally:
                    java.close()
                print(f"{how}: load {os.getloadavg()[0]:.1f}", flush=True)
            running.close()
    finally:
        store.stop()


def take_over(running: RunningStack, java: JavaConnect, store: RestCatalog, name: str) -> float:
    """End the Java sink in the named way while Icefloe waits for it; return the seconds."""
    catalog = load_catalog("rest", **store.properties)
    source, table = SourceTopic(running, name), f"default.{name}"
    running.table(table, catalog, schema=NUMBERED)
    config = connector(store, source, table, running.topic("control", partitions=3))
    source.write(0, 10)
    java.create(name, config)
    wait_rows(running, catalog, table, source)
    running.create(name, config)
    if name == "killed":
        java.kill()
    else:
        java.stop_connector(name)
    source.write(0, 10)
    known = len(catalog.load_table(table).metadata.snapshots)
    admin = KafkaAdmin({"bootstrap.servers": running.stack.bootstrap_servers})
    try:
        wait(lambda: not admin.members(f"connect-{name}"), POLL_S)
    finally:
        admin.close()
    began_s = time.monotonic()
    wait(lambda: len(catalog.load_table(table).metadata.snapshots) > known, POLL_S)
    seconds = time.monotonic() - began_s
    wait_rows(running, catalog, table, source)
    running.delete(name)
    return seconds
