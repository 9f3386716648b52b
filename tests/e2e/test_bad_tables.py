"""One of three tables breaks while its connector runs: the two others are still committed.

The tests share the connector. Each repairs the table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ValidationError

from tests.support.running_stack import RunningStack, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
KINDS = ("bad", "good1", "good2")
DAY_MS = 24 * 3_600_000


@dataclass
class ThreeTables:
    """A connector with three tables; each has a row for each record of its kind."""

    running: RunningStack
    name: str
    topic: str
    sent: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    def table(self, kind: str) -> str:
        """The table of a kind."""
        return f"{self.name.replace('-', '_')}.{kind}"

    def produce(self, *kinds: str) -> None:
        """A record for each of these kinds."""
        for kind in kinds:
            self.running.produce(self.topic, {"id": self.sent[kind], "name": kind})
            self.sent[kind] += 1

    def arrived(self, *kinds: str) -> None:
        """Every record of these kinds is in its table once."""
        for kind in kinds:
            rows = self.running.rows(self.table(kind), self.sent[kind], self.name)
            assert pick(rows, "id") == [(n,) for n in range(self.sent[kind])]

    @property
    def metadata(self) -> Path:
        """The bad table's metadata file."""
        table = self.running.catalog.load_table(self.table("bad"))
        return Path(table.metadata_location.removeprefix("file://"))

    def break_metadata(self) -> tuple[Path, str]:
        """Cut the bad table's metadata file; return it, and its content.

        A commit that began with a load from before replaces the file: then the next one is cut.
        """
        while True:
            path = self.metadata
            content = path.read_text()
            path.write_text(content[: len(content) // 2])
            for _ in range(2):  # the second round begins after the commits of the first
                self.produce(*KINDS)
                self.arrived("good1", "good2")
            try:
                self.running.catalog.load_table(self.table("bad"))
            except ValidationError:
                return path, content

    def failed(self) -> dict[str, Any]:
        """What the node shows of the table that is not committed."""

        def inspect() -> dict[str, Any] | None:
            displayed = self.running.api.get(f"/icefloe/v1/connectors/{self.name}/tables").json()
            failed = [t for t in displayed["tables"] if t.get("code") and t.get("records")]
            return failed[0] if failed else None

        return self.running.wait_until(inspect, lambda: f"a failed table of {self.name}")

    def restart(self) -> None:
        """Start the connector and its tasks again, and wait until they run."""
        self.running.stop(self.name)
        self.running.request_state(self.name, "resume")
        self.running.wait_until_running(self.name)


@pytest.fixture(scope="module")
def three(running: RunningStack) -> Iterator[ThreeTables]:
    """A row in each table."""
    name = unique_name("one-bad-table")
    topic = running.topic("one-bad-table", message_timestamp_after_max_ms=str(400 * DAY_MS))
    three = ThreeTables(running, name, topic)
    tables = {kind: three.table(kind) for kind in KINDS}
    for table in tables.values():
        running.table(table)
    routes = {f"iceberg.table.{t}.route-regex": kind for kind, t in tables.items()}
    config = running.connector(
        topics=three.topic,
        iceberg__tables=",".join(tables.values()),
        iceberg__tables__route_field="name",
    )
    running.create(name, {**config, **routes})
    three.produce(*KINDS)
    three.arrived(*KINDS)
    yield three
    running.delete(name)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file; a reader finds the former content or the new one."""
    document = json.loads(path.read_text())
    change(document)
    new = path.with_name(f".{path.name}")
    new.write_text(json.dumps(document))
    new.replace(path)


def test_a_table_with_broken_metadata_waits_for_its_repair(three: ThreeTables) -> None:
    """Its files wait, also over a restart; after the repair it has every record once."""
    path, metadata = three.break_metadata()
    assert three.failed()["code"] == "metadata_unreadable"
    three.restart()
    three.produce("good1", "good2")
    three.arrived("good1", "good2")
    three.running.wait_until_running(three.name)
    path.write_text(metadata)
    three.arrived("bad")
    three.restart()
    three.produce(*KINDS)
    three.arrived(*KINDS)


def test_invalid_table_properties_have_no_effect(three: ThreeTables) -> None:
    """Running and restarted tasks write and commit its rows."""
    unreadable = {
        "write.object-storage.enabled": "maybe",
        "write.target-file-size-bytes": "large",
        "write.parquet.compression-codec": "lzma",
        "write.metadata.previous-versions-max": "all",
    }
    edit(three.metadata, lambda metadata: metadata["properties"].update(unreadable))
    three.produce(*KINDS)
    three.arrived(*KINDS)
    three.restart()
    three.produce(*KINDS)
    three.arrived(*KINDS)


def test_a_table_with_broken_manifests_fails_alone(three: ThreeTables) -> None:
    """The coordinator commits it when it can read them."""
    head = three.running.catalog.load_table(three.table("bad")).current_snapshot()
    assert head is not None
    path = Path(head.manifest_list.removeprefix("file://"))
    content = path.read_bytes()
    path.write_bytes(b"Obj\x01" + bytes(100))
    three.restart()  # the coordinator forgets the manifests that it wrote
    three.produce(*KINDS)
    three.arrived("good1", "good2")
    assert three.failed()["code"] == "manifest_invalid"
    path.write_bytes(content)
    three.arrived("bad")


def test_a_wrong_valid_through_time_can_be_reset(three: ThreeTables) -> None:
    """The next claims are true, and no row is changed."""
    running = three.running
    config = running.api.get(f"/connectors/{three.name}/config").json()
    running.reconfigure(
        three.name, {**config, "iceberg.control.vtts.future-max-ms": str(365 * DAY_MS)}
    )
    far_ms = int(time.time() * 1000) + 300 * DAY_MS
    running.produce(three.topic, {"id": three.sent["bad"], "name": "bad"}, timestamp=far_ms)
    three.sent["bad"] += 1
    three.arrived("bad")

    def claim() -> str | None:
        head = running.catalog.load_table(three.table("bad")).current_snapshot()
        assert head is not None
        assert head.summary is not None
        return head.summary.get("kafka.connect.valid-through-ts")

    def is_wrong() -> bool:
        valid_through = claim()
        if valid_through is None:  # that round did not wait for all partitions: the next one claims
            three.produce("bad")
            three.arrived("bad")
        return valid_through is not None and valid_through > _minute()

    running.wait_until(is_wrong, lambda: f"a wrong claim of {three.name}")
    running.stop(three.name)
    command = ("control", "vtts", "reset", three.name, "--reason", "dated next year")
    assert running.icefloe(*command)[0] == 2
    status, output = running.icefloe(*command, "--yes")
    assert (status, "removed by snapshot" in output) == (0, True), output
    running.request_state(three.name, "resume")
    three.produce(*KINDS)
    three.arrived(*KINDS)

    def is_true() -> bool:
        valid_through = claim()
        if valid_through is None:
            three.produce("bad")
            three.arrived("bad")
        return valid_through is not None and valid_through < _minute()

    running.wait_until(is_true, lambda: f"a true claim of {three.name}")


def _minute() -> str:
    """Behind every instant of this minute, as texts are ordered."""
    return time.strftime("%Y-%m-%dT%H:%M", time.gmtime()) + "Z"
