"""``icefloe standalone``: bounded loads without a cluster of nodes, killed and run again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from tests.support.forked_commands import ForkedCommands
from tests.support.processes import kill_tree
from tests.support.running_stack import RunningStack
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PROGRAM = (sys.executable, "-m", "connect.cli.main")
STUBBED = """
import functools
from connect.cli import main
from connect.node.node_start import NodeStart
from tests.support.stub_node import COMMANDS
NodeStart.of = functools.partial(NodeStart.of, commands=COMMANDS)
main.main()
"""
TIMEOUT_S = 300
POLL_S = 0.5
IDS = range(3_000)
LATE_IDS = range(10_000, 10_100)


class StandaloneJob:
    """A folder with a standalone node's properties, connectors, state and catalog."""

    def __init__(self, folder: Path, servers: str) -> None:
        self.folder = folder
        self.servers = servers
        self.catalog = {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": f"file://{folder / 'warehouse'}",
        }
        self.group = unique_name("standalone")
        self._started: list[psutil.Popen] = []
        (folder / "warehouse").mkdir()
        self.node = self._properties(
            "node",
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "offset.storage.file.filename": str(folder / "unused.offsets"),
                "icefloe.state.dir": str(folder / "state"),
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "spark.master": "local[2]",
                "spark.driver.memory": "1g",
            },
        )

    def connector(self, topic: str, table: str) -> dict[str, str]:
        """A bounded connector that creates its table."""
        return {
            "name": f"{self.group}-{table}",
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": topic,
            "icefloe.end": "latest",
            "iceberg.tables": f"db.{table}",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.control.topic": f"control-{self.group}",
            "iceberg.control.commit.interval-ms": "1000",
            **{f"iceberg.catalog.{key}": value for key, value in self.catalog.items()},
        }

    def as_json(self, config: Mapping[str, str]) -> Path:
        """A connector file in the form of POST /connectors."""
        file = self.folder / f"{config['name']}.json"
        file.write_text(json.dumps({"name": config["name"], "config": dict(config)}))
        return file

    def as_properties(self, config: Mapping[str, str]) -> Path:
        """A connector file as connect-standalone takes it."""
        return self._properties(config["name"], config)

    def run(self, commands: ForkedCommands, *files: Path) -> int:
        """Run the command to its end, in a process forked after its imports; return its status."""
        return self.start(*files, program=(commands.path / "icefloe",)).wait(TIMEOUT_S)

    def start(self, *files: Path, program: Sequence[str | Path] = PROGRAM) -> psutil.Popen:
        """Start the command; its log is ``run.log``."""
        with (self.folder / "run.log").open("ab") as log:
            started = psutil.Popen(
                [*map(str, program), "standalone", str(self.node), *map(str, files)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    "PYTHONPATH": str(Path(__file__).parents[2]),
                    "STUB_DIR": str(self.folder),
                },
                cwd=self.folder,
            )
        self._started.append(started)
        return started

    def ids(self, table: str) -> list[int]:
        """Every id of a table; none while it does not exist."""
        catalog = load_catalog("iceberg", **self.catalog)  # the default of iceberg.catalog
        try:
            rows = catalog.load_table(("db", table)).scan().to_arrow()
        except NoSuchTableError:
            return []
        finally:
            catalog.close()
        ids: list[int] = sorted(rows["id"].to_pylist())
        return ids

    def await_rows(self, table: str) -> None:
        """Wait until a commit to the table has rows."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self.ids(table):
            assert time.monotonic() < deadline_s, self.log()
            assert self._started[-1].poll() is None, self.log()
            time.sleep(POLL_S)

    def log(self) -> str:
        """What the command and its children wrote."""
        files = [self.folder / "run.log", *sorted((self.folder / "state").glob("*.log"))]
        return "\n".join(f"{f.name}:\n{f.read_text()[-6_000:]}" for f in files if f.exists())

    def kill(self) -> None:
        """SIGKILL for every process of the tree that still runs."""
        for started in self._started:
            if started.poll() is None:
                kill_tree(started, TIMEOUT_S)

    def _properties(self, name: str, values: Mapping[str, str]) -> Path:
        file = self.folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return file


@pytest.fixture
def job(tmp_path: Path, running: RunningStack) -> Iterator[StandaloneJob]:
    """A job on the broker of the shared stack; its processes end with the test."""
    job = StandaloneJob(tmp_path, running.stack.bootstrap_servers)
    yield job
    job.kill()


def produce(producer: Producer, topic: str, ids: range) -> None:
    for number in ids:
        producer.produce(topic, json.dumps({"id": number}))
        producer.poll(0)
    assert producer.flush(60) == 0


def test_a_killed_bounded_load_ends_at_the_same_offsets(
    job: StandaloneJob, running: RunningStack, commands: ForkedCommands
) -> None:
    """Two topics, SIGKILL in the middle; then status 0, and 0 again without another run.

    An open transaction in one topic keeps the first run in the middle. Its records are below the
    end, so the second run waits for them. Records that come later are not part of the load.
    """
    first, second = running.topic("bounded", partitions=2), running.topic("bounded")
    settings = {"bootstrap.servers": job.servers, "log_level": 0}
    plain = Producer(settings)
    longest = {"transaction.timeout.ms": 900_000}  # the broker aborts it after that
    held = Producer({**settings, **longest, "transactional.id": unique_name("held")})
    before = set(AdminClient(settings).list_topics(timeout=60).topics)
    produce(plain, first, IDS)
    produce(plain, second, IDS[:1_000])
    held.init_transactions(60)
    held.begin_transaction()
    produce(held, second, IDS[1_000:])
    files = (
        job.as_json(job.connector(first, "one")),
        job.as_properties(job.connector(second, "two")),
    )
    first_run = job.start(*files)
    job.await_rows("one")
    job.await_rows("two")
    assert [c for c in first_run.net_connections() if c.status == psutil.CONN_LISTEN] == []
    job.kill()
    held.commit_transaction(60)
    produce(plain, first, LATE_IDS)
    produce(plain, second, LATE_IDS)

    assert job.run(commands, *files) == 0, job.log()
    assert (job.ids("one"), job.ids("two")) == ([*IDS], [*IDS])
    assert job.run(commands, *files) == 0, job.log()
    assert (job.ids("one"), job.ids("two")) == ([*IDS], [*IDS])
    after = set(AdminClient(settings).list_topics(timeout=60).topics)
    assert after - before <= {f"control-{job.group}", "__consumer_offsets", "__transaction_state"}


def test_a_failed_connector_ends_the_job_with_status_1(job: StandaloneJob) -> None:
    """Its topic does not exist: the message has connector, topic and remedy.

    The node finds it without its children, so they need no Spark.
    """
    config = job.connector("no-such-topic", "three")
    started = job.start(job.as_json(config), program=(sys.executable, "-c", STUBBED))
    assert started.wait(TIMEOUT_S) == 1, job.log()
    output = (job.folder / "run.log").read_text()
    assert f"error: connector {config['name']} FAILED: " in output
    assert "topic no-such-topic does not exist, so icefloe.end has no end offsets" in output
