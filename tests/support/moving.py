"""Numbered source records, one JSON for both sinks, and the check, for tests of moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from typer.testing import CliRunner

from connect.cli.migrate_command import migrate_app
from connect.errors import IcefloeError
from control_schemas.codec import decode
from control_schemas.events import DataWritten
from tests.support.running_stack import INTERVAL_MS, RunningStack
from tests.support.stack import RestCatalog

NUMBERED = Schema(
    NestedField(1, "partition", LongType()),
    NestedField(2, "sequence", LongType()),
)
Row = tuple[int, int]
UNSAFE = 1


class SourceTopic:
    """A topic of numbered records, and what was written to it.

    Args:
        running: the stack.
        prefix: of the topic's name.
    """

    def __init__(self, running: RunningStack, prefix: str) -> None:
        self.topic = running.topic(prefix, partitions=2)
        self.written: list[Row] = []
        self._running = running

    def write(self, partition: int, count: int) -> None:
        """Append the next records of a partition."""
        start = sum(p == partition for p, _ in self.written)
        rows = [(partition, n) for n in range(start, start + count)]
        values = [{"partition": p, "sequence": n} for p, n in rows]
        self._running.produce(self.topic, *values, partition=partition)
        self.written += rows


def connector(
    rest_catalog: RestCatalog, source: SourceTopic, table: str, control_topic: str, **more: str
) -> dict[str, str]:
    """One JSON for both sinks."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": source.topic,
        "iceberg.tables": table,
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": rest_catalog.uri,
        "iceberg.catalog.warehouse": rest_catalog.properties["warehouse"],
        "iceberg.catalog.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        "iceberg.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "iceberg.control.topic": control_topic,
        "iceberg.control.commit.interval-ms": INTERVAL_MS,
        "iceberg.control.commit.timeout-ms": "2000",
        # a dead Java consumer leaves its groups sooner than after 45 s
        "consumer.override.session.timeout.ms": "6000",
        "iceberg.kafka.session.timeout.ms": "6000",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in more.items()},
    }


def rows(catalog: Catalog, table: str) -> list[Row]:
    """A table's rows, sorted."""
    records = catalog.load_table(table).scan().to_arrow().to_pylist()
    return sorted((row["partition"], row["sequence"]) for row in records)


def wait_rows(running: RunningStack, catalog: Catalog, table: str, source: SourceTopic) -> None:
    """Wait until everything that was written is in the table; then exactly that must be."""
    running.wait_until(
        lambda: len(rows(catalog, table)) >= len(source.written),
        lambda: f"{len(source.written)} rows, now {len(rows(catalog, table))}",
    )
    assert rows(catalog, table) == sorted(source.written)


def engines(catalog: Catalog, table: str) -> list[str]:
    """Return the engine of each snapshot, in order."""
    snapshots = sorted(
        catalog.load_table(table).metadata.snapshots, key=lambda s: s.sequence_number or 0
    )
    return [str(s.summary["engine-name"]) if s.summary else "" for s in snapshots]


def migrate_check(
    running: RunningStack, folder: Path, name: str, config: dict[str, str]
) -> tuple[int, dict[str, Any]]:
    """``icefloe migrate --check`` of a connector by the node: exit status and report.

    Raises:
        IcefloeError: the node could not check.
    """
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"name": name, "config": config}))
    where = ["--server", running.stack.rest_url]
    done = CliRunner().invoke(migrate_app, ["--check", "-f", str(file), "-o", "json", *where])
    if isinstance(done.exception, IcefloeError):
        raise done.exception
    assert done.exit_code in {0, UNSAFE}, done.exception
    report: dict[str, Any] = json.loads(done.stdout)
    return done.exit_code, report


def codes(report: dict[str, Any]) -> set[str]:
    """Return the codes of the findings of a report."""
    return {finding["code"] for finding in report["findings"]}


def announced(running: RunningStack, control_topic: str, group: str) -> int:
    """Rows in files that a group's tasks have announced."""
    events = [decode(record.value()) for record in running.records(control_topic)]
    return sum(
        file.record_count
        for event in events
        if event.group_id == group and isinstance(event.payload, DataWritten)
        for file in event.payload.data_files or ()
    )
