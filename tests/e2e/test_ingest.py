"""``icefloe ingest``: the example of kafka-delta-ingest's README, killed in the middle."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from tests.support.delta_tables import delta_duckdb
from tests.support.forked_commands import ForkedCommands
from tests.support.processes import kill_tree
from tests.support.running_stack import RunningStack
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PROGRAM = (sys.executable, "-m", "connect.cli.main")
TIMEOUT_S = 300
POLL_S = 0.5
RECORDS = 2_000
BEFORE = 5  # records that kafka-delta-ingest has written
FIRST_DAY = datetime(2021, 3, 24, 15, 6, 17, 321710, UTC)
METHODS = ("GET", "POST", "PUT", "DELETE")
SITES = ("http://www.example.com", "http://www.youku.com", "http://www.wikipedia.org")


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


KAFKA_FIELDS = struct(
    field("offset", "long"), field("topic", "string"), field("partition", "integer")
)
META = struct(field("producer", struct(field("timestamp", "string"))), field("kafka", KAFKA_FIELDS))
WEB_REQUESTS = struct(
    field("meta", META),
    field("method", "string"),
    field("session_id", "string"),
    field("status", "integer"),
    field("url", "string"),
    field("uuid", "string"),
    field("date", "string"),
)
"""The table of the README's example."""


class IngestRuns:
    """Runs of the README's command in one folder."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder = folder
        self.servers = servers
        self.app_id = unique_name("web_requests")
        self.location = folder / "tests" / "data" / "web_requests"
        self._started: list[psutil.Popen] = []

    def create_table(self) -> None:
        """Create the table as the example's first transaction does."""
        self.location.mkdir(parents=True)
        schema = Schema.from_json(json.dumps(WEB_REQUESTS))
        DeltaTable.create(str(self.location), schema, partition_by=["date"])

    def command(self, topic: str, *more: str) -> list[str]:
        """The arguments of the README, with the broker of this test."""
        return [
            *("ingest", topic, "./tests/data/web_requests"),
            *("--allowed_latency", "1", "--app_id", self.app_id),
            *("--transform", "date: substr(meta.producer.timestamp, `0`, `10`)"),
            *("--transform", "meta.kafka.offset: kafka.offset"),
            *("--transform", "meta.kafka.partition: kafka.partition"),
            *("--transform", "meta.kafka.topic: kafka.topic"),
            *("--auto_offset_reset", "earliest", "-k", self.servers, *more),
        ]

    def run(
        self, commands: ForkedCommands, arguments: list[str], log: str = "run.log", **environ: str
    ) -> int:
        """Run the command to its end, in a process forked after its imports; return its status."""
        program = (commands.path / "icefloe",)
        return self.start(arguments, log, program=program, **environ).wait(TIMEOUT_S)

    def start(
        self,
        arguments: list[str],
        log: str = "run.log",
        *,
        program: Sequence[str | Path] = PROGRAM,
        **environ: str,
    ) -> psutil.Popen:
        """Start the command; its output is in a file of the folder."""
        own = {
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "CONNECT_SPARK_MASTER": "local[2]",
            "CONNECT_SPARK_DRIVER_MEMORY": "1g",
        }
        with (self.folder / log).open("ab") as output:
            started = psutil.Popen(
                [*map(str, program), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own, **environ},
                cwd=self.folder,
            )
        self._started.append(started)
        return started

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table as delta-rs reads them; none if there is no table."""
        try:
            found: list[dict[str, Any]] = (
                DeltaTable(str(self.location)).to_pyarrow_table().to_pylist()
            )
        except TableNotFoundError:
            return []
        return found

    def count(self) -> int:
        """The number of rows of the table."""
        try:
            return DeltaTable(str(self.location)).to_pyarrow_dataset().count_rows()
        except TableNotFoundError:
            return 0

    def await_rows(self, count: int, running: psutil.Popen) -> None:
        """Wait until the table has this many rows; the process must not end before."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.count() < count:
            assert time.monotonic() < deadline_s, self.log()
            assert running.poll() is None, self.log()
            time.sleep(POLL_S)

    def log(self, name: str = "run.log") -> str:
        """The end of what the command and its children wrote."""
        return (self.folder / name).read_text()[-8_000:]

    def kill(self) -> None:
        """SIGKILL for every process that still runs."""
        for started in self._started:
            if started.poll() is None:
                kill_tree(started, TIMEOUT_S)


@pytest.fixture
def runs(tmp_path: Path, running: RunningStack) -> Iterator[IngestRuns]:
    """Runs on the broker of the shared stack; their processes end with the test."""
    made = IngestRuns(tmp_path, running.stack.bootstrap_servers)
    yield made
    made.kill()


def web_requests(count: int, seed: int) -> list[dict[str, Any]]:
    """Records in the form of the example's data, of two days."""
    chance = random.Random(seed)

    def one(index: int) -> dict[str, Any]:
        at = FIRST_DAY + timedelta(seconds=index * 86_400 / count)
        return {
            "meta": {"producer": {"timestamp": at.isoformat(timespec="microseconds")}},
            "method": chance.choice(METHODS),
            "session_id": str(uuid.UUID(int=chance.getrandbits(128))),
            "status": chance.choice((200, 204, 404, 500)),
            "url": chance.choice(SITES),
            "uuid": str(uuid.UUID(int=chance.getrandbits(128))),
        }

    return [one(index) for index in range(count)]


def produce(servers: str, topic: str, records: list[dict[str, Any]], partitions: int) -> None:
    """Produce records to the partitions in turn, as lines of the example's file."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for index, record in enumerate(records):
        producer.produce(topic, json.dumps(record), partition=index % partitions)
        producer.poll(0)
    assert producer.flush(60) == 0


def write_before(runs: IngestRuns, records: list[dict[str, Any]]) -> None:
    """Write the first records of partition 0 as kafka-delta-ingest does, with their last offset."""
    schema = DeltaTable(str(runs.location)).to_pyarrow_table().schema
    written = pa.Table.from_pylist([{**r, "date": "2021-03-24"} for r in records], schema)
    stored = Transaction(app_id=f"{runs.app_id}-0", version=len(records) - 1)
    write_deltalake(
        str(runs.location),
        written,
        mode="append",
        partition_by=["date"],
        commit_properties=CommitProperties(app_transactions=[stored]),
    )


def test_the_readme_example_is_exactly_once(
    runs: IngestRuns, running: RunningStack, commands: ForkedCommands
) -> None:
    """A table of kafka-delta-ingest is continued by a run that is killed, and by another one.

    The first run reads after the offset in the table's log, and another partition from its start;
    a second process is refused. The last run keeps a bad record, and ends.
    """
    topic = running.topic("web_requests", partitions=2)
    runs.create_table()
    first, second = web_requests(RECORDS, seed=1), web_requests(RECORDS, seed=2)
    write_before(runs, first[: 2 * BEFORE : 2])
    produce(runs.servers, topic, first, 2)
    first_run = runs.start(runs.command(topic))
    runs.await_rows(RECORDS, first_run)

    other = {"CONNECT_ICEFLOE_STATE_DIR": str(runs.folder / "other")}
    status = runs.run(commands, runs.command(topic), "other.log", **other)
    assert status == 2, runs.log("other.log")
    assert f"another process ingests with the app id '{runs.app_id}'" in runs.log("other.log")

    produce(runs.servers, topic, second[: RECORDS // 2], 2)
    runs.await_rows(RECORDS + 1, first_run)
    runs.kill()
    produce(runs.servers, topic, second[RECORDS // 2 :], 2)
    produce(runs.servers, topic, [{**first[0], "status": "none"}], 1)
    bounded = runs.command(topic, "--ends_at_latest_offsets", "--dlq_table_location", "letters")
    assert runs.run(commands, bounded, "bounded.log") == 0, runs.log("bounded.log")
    printed = (runs.folder / "bounded.log").read_text()
    unwanted = ("Traceback", "\tat ", "incubator modules")
    assert not [each for each in unwanted if each in printed], printed

    rows = runs.rows()
    sent = {record["uuid"]: record for record in (*first, *second)}
    assert len(rows) == len(sent) == 2 * RECORDS
    origins = []
    for row in rows:
        if kafka := row["meta"].pop("kafka"):
            origins.append((kafka["topic"], kafka["partition"], kafka["offset"]))
        assert row.pop("date") == row["meta"]["producer"]["timestamp"][:10]
        assert row == sent[row["uuid"]]
    ranges = {0: range(BEFORE, RECORDS), 1: range(RECORDS)}
    assert sorted(origins) == [
        (topic, part, offset) for part, offsets in ranges.items() for offset in offsets
    ]
    letters = DeltaTable(str(runs.folder / "letters")).to_pyarrow_table().to_pylist()
    assert [(row["partition"], row["offset"]) for row in letters] == [(0, RECORDS)]
    with delta_duckdb() as duck:
        table = f"delta_scan('{runs.location}')"
        found = duck.execute(
            f"select date, count(distinct uuid) from {table} group by 1"
        ).fetchall()
    assert dict(found).keys() == {"2021-03-24", "2021-03-25"}
    assert sum(dict(found).values()) == 2 * RECORDS
