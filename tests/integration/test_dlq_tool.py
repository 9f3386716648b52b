"""``icefloe dlq`` on a real broker, by a node and without one: dead letters are replayed once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from connect.clock import SystemClock
from connect.errors import RecordError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.operations.connector_operations import NODE_LIMITS, ConnectorOperations
from connect.operations.dead_letter_replay import ReplayChoice
from connect.records.dead_letter import message
from connect.validation.parse import parse
from tests.support.command_line import CommandResult, icefloe
from tests.support.reading import committed_records
from tests.support.running_node import RunningNode
from tests.support.stack import Topics, unique_name
from tests.support.topic_deletion import delete_topic

pytestmark = pytest.mark.kafka
CONTENT = "content-7c2e"
OWN_HEADERS = (("h", b"\x00\xff"), ("h", None), ("__connect.errors.topic", CONTENT.encode()))
KILLED = -9
TIME_MS = 1_700_000_000_000


class DeadLetterTool:
    """A connector's file and its dead letter topic.

    Args:
        kafka: client properties.
        topics: creates topics.
        folder: for the file.
        node: runs the connector and its commands; None: the commands ask the broker.
    """

    def __init__(
        self,
        kafka: dict[str, str],
        topics: Topics,
        folder: Path,
        node: RunningNode | None = None,
    ) -> None:
        self.kafka = kafka
        self.node = node
        self.name = unique_name("replays")
        self.source = topics.create("source", partitions=2, retention_ms="-1")
        self.topic = topics.create("letters", retention_ms="-1")
        self.config = {
            "name": self.name,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self.source,
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": "http://127.0.0.1:9/no-catalog",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": self.topic,
        }
        self.file = folder / "connector.json"
        self.file.write_text(json.dumps({"name": self.name, "config": self.config}))
        self.producer = TransactionalProducer(kafka, f"writes-{self.name}")
        self.producer.init()
        self.admin = KafkaAdmin(kafka)
        if node is not None:
            answer = node.call("PUT", f"/connectors/{self.name}/config", json=self.config)
            assert answer.status_code == 201, answer.text

    def add(
        self,
        first: int,
        end: int,
        *,
        code: str = "bad_json",
        context: bool = True,
        bare: bool = False,
        **changes: str,
    ) -> list[KafkaRecord]:
        """Dead letters of these source offsets, in a transaction as a task writes them.

        ``bare`` are those of another sink, without any headers about the error.
        """
        enabled = {"errors.deadletterqueue.context.headers.enable": str(context).lower()}
        config = parse({**self.config, **enabled, **changes})
        error = RecordError("column=id", stage="VALUE_CONVERTER", code=code, table="db.t")
        records = [
            KafkaRecord(
                self.source,
                n % 2,
                n,
                TIME_MS + n,
                0,
                f"{CONTENT} {n}".encode() if n % 3 else None,
                f"{CONTENT} {n}".encode() if n % 5 else None,
                OWN_HEADERS if n % 7 else (),
            )
            for n in range(first, end)
        ]
        built = [message(record, error, config, task_id=0) for record in records]
        if bare:
            built = [
                replace(each, headers=record.headers)
                for each, record in zip(built, records, strict=True)
                if each is not None
            ]
        self.producer.transact([each for each in built if each is not None])
        topic = [TopicPartition(self.topic, 0)]
        # the broker writes the markers of a transaction after it has acknowledged the commit
        while self.admin.ends(topic) != self.admin.high_watermarks(topic):
            time.sleep(0.01)
        return records

    def _command(self, *arguments: str) -> list[str]:
        command, *more = arguments
        if self.node is not None:
            return ["dlq", command, self.name, *more, "--server", self.node.url]
        where = ("-f", str(self.file), "--bootstrap-server", self.kafka["bootstrap.servers"])
        return ["dlq", command, self.name, *more, *where]

    def run(self, *arguments: str) -> CommandResult:
        """The command as a user runs it."""
        return icefloe(*self._command(*arguments))

    def killed_replay(self, failpoint: str) -> None:
        """A replay in a process of its own, which ends at once at a failpoint."""
        command = [sys.executable, "-m", "connect.cli.main", *self._command("replay", "--yes")]
        armed = {**os.environ, "ICEFLOE_FAILPOINTS": f"{failpoint}=crash@1"}
        done = subprocess.run(command, capture_output=True, timeout=300, check=False, env=armed)
        assert done.returncode == KILLED

    def back(self, topic: str | None = None, partitions: int = 2) -> list[KafkaRecord]:
        """Committed records of the source topic, or of another one."""
        read = [TopicPartition(topic or self.source, p) for p in range(partitions)]
        return committed_records(self.kafka, *read)

    def close(self) -> None:
        """Close the connections."""
        self.producer.close()
        self.admin.close()


@pytest.fixture(scope="module")
def node(
    kafka_properties: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningNode]:
    """A node with stub children."""
    node = RunningNode(tmp_path_factory.mktemp("dlq"), kafka_properties["bootstrap.servers"])
    node.start()
    yield node
    node.close()


@pytest.fixture(params=["node", "direct"])
def dead_letters(
    request: pytest.FixtureRequest,
    kafka_properties: dict[str, str],
    topics: Topics,
    tmp_path: Path,
    node: RunningNode,
) -> Iterator[DeadLetterTool]:
    """A connector without dead letters; no catalog answers at its address."""
    tool = DeadLetterTool(
        kafka_properties, topics, tmp_path, node if request.param == "node" else None
    )
    yield tool
    tool.close()


@pytest.fixture
def direct(
    kafka_properties: dict[str, str], topics: Topics, tmp_path: Path
) -> Iterator[DeadLetterTool]:
    """A connector that no node runs."""
    tool = DeadLetterTool(kafka_properties, topics, tmp_path)
    yield tool
    tool.close()


def content(records: list[KafkaRecord]) -> list[tuple[object, ...]]:
    """What a replay must keep, in an order of its own."""
    remaining = [
        (r.timestamp_ms, r.partition, r.timestamp_type, r.key, r.value, r.headers) for r in records
    ]
    return sorted(remaining, key=lambda row: row[0] or 0)


def test_a_killed_command_replays_each_dead_letter_once(direct: DeadLetterTool) -> None:
    """Killed after and inside a transaction: all are replayed byte for byte, none twice."""
    dead_letters = direct
    expected = dead_letters.add(0, 700) + dead_letters.add(700, 1_900)
    dead_letters.killed_replay("R2")
    some = len(dead_letters.back())
    assert 0 < some < len(expected)
    dead_letters.killed_replay("R1")
    done = dead_letters.run("replay", "--yes")
    assert done.status == 0, done.stderr
    assert f"{len(expected) - some:,} were put back on topic {dead_letters.source}" in done.stdout
    assert content(dead_letters.back()) == content(expected)
    more = dead_letters.add(1_900, 1_903)
    again = dead_letters.run("replay", "--yes")
    assert f"3 were put back on topic {dead_letters.source}" in again.stdout
    assert content(dead_letters.back()) == content(expected + more)
    assert "no dead letter waits" in dead_letters.run("replay", "--yes").stdout
    assert CONTENT not in done.stdout + done.stderr + again.stdout + again.stderr


def test_a_killed_node_replays_each_dead_letter_once(
    kafka_properties: dict[str, str], topics: Topics, tmp_path: Path
) -> None:
    """Killed inside a transaction: the next node replays all, byte for byte, none twice."""
    node = RunningNode(tmp_path / "node", kafka_properties["bootstrap.servers"])
    node.folder.mkdir()
    node.start("replay")
    dead_letters = DeadLetterTool(kafka_properties, topics, tmp_path, node)
    try:
        expected = dead_letters.add(0, 900)
        assert dead_letters.run("replay", "--yes").status == 3
        assert node.process.wait(150) != 0
        # its transaction is open, with records: the broker would end it after a minute
        places = [TopicPartition(dead_letters.source, p) for p in range(2)]
        assert set(dead_letters.admin.ends(places).values()) == {0}
        assert any(dead_letters.admin.high_watermarks(places).values())
        node.start()
        node.wait_until(
            lambda: node.call("GET", f"/connectors/{dead_letters.name}").status_code == 200
        )
        done = dead_letters.run("replay", "--yes")
        assert done.status == 0, done.stderr
        assert content(dead_letters.back()) == content(expected)
        assert "no dead letter waits" in dead_letters.run("replay", "--yes").stdout
    finally:
        dead_letters.close()
        node.close()


def test_a_node_replays_a_limited_number_of_offsets_per_request(
    kafka_properties: dict[str, str], topics: Topics, tmp_path: Path
) -> None:
    """Requests are repeated up to the first ends; later dead letters are not replayed."""
    dead_letters = DeadLetterTool(kafka_properties, topics, tmp_path)
    expected = dead_letters.add(0, 120)
    limits = replace(NODE_LIMITS, replayed_offsets_max=50, counted_offsets_max=30)
    operations = ConnectorOperations(kafka_properties, {}, SystemClock(), limits)
    counted = operations.dead_letter_kinds(dead_letters.config)
    assert (counted["records"], counted["offsets_not_read"]) == (29, 91)  # and a marker
    plan = operations.replay(dead_letters.config, ReplayChoice(), is_applied=False)
    assert (plan["offsets_left"], sum(plan["targets"].values())) == (71, 50)
    assert dead_letters.back() == []
    dead_letters.add(120, 130)
    ends = {end["partition"]: end["offset"] for end in plan["ends"]}
    left = []
    while not left or left[-1]:
        done = operations.replay(dead_letters.config, ReplayChoice(ends=ends), is_applied=True)
        left.append(done["offsets_left"])
    assert left == [71, 21, 0]
    assert content(dead_letters.back()) == content(expected)
    dead_letters.close()


def test_a_node_hides_dead_letters_of_other_connectors(
    dead_letters: DeadLetterTool,
) -> None:
    """They are neither counted nor shown; the direct command reads the whole topic."""
    dead_letters.add(0, 2)
    dead_letters.add(2, 5, name="another")
    is_node = dead_letters.node is not None
    listed = json.loads(dead_letters.run("list", "-o", "json").stdout)
    assert listed["records"] == (2 if is_node else 5)
    for more in ([], ["--content"]):
        displayed = dead_letters.run("show", "0:4", *more)  # behind a marker
        assert displayed.status == (1 if is_node else 0), displayed.stderr
        assert (CONTENT in displayed.output) == (not is_node and bool(more))


def test_a_replay_writes_only_to_source_topics_of_the_connector(
    dead_letters: DeadLetterTool, topics: Topics
) -> None:
    """Neither ``--topic`` nor a forged header selects another one."""
    other = topics.create("other")
    dead_letters.add(0, 1, bare=True)
    refused = dead_letters.run("replay", "--yes", "--topic", other)
    assert refused.status == 1, refused.output
    assert f"goes to topic {other} which does not exist, or which" in refused.stderr
    source, dead_letters.source = dead_letters.source, other
    dead_letters.add(1, 2)
    dead_letters.source = source
    refused = dead_letters.run("replay", "--yes", "--topic", source)
    assert refused.status == 1, refused.output
    assert f"goes to topic {other}, partition 1, which" in refused.stderr
    assert dead_letters.back(other, 1) == []


def test_an_unconfirmed_replay_only_prints_its_plan(dead_letters: DeadLetterTool) -> None:
    """Exit status 2 and the counts; no record is written."""
    dead_letters.add(0, 5)
    for _ in range(2):
        result = dead_letters.run("replay")
        assert result.status == 2
        assert f"5 would be put back on topic {dead_letters.source}" in result.stdout
    assert not dead_letters.back()


def test_filtered_and_foreign_dead_letters_are_skipped_and_reported(
    dead_letters: DeadLetterTool,
) -> None:
    """Only the requested code, and none of other connectors in the same topic."""
    dead_letters.add(0, 4)
    wanted = dead_letters.add(4, 6, code="not_null")
    dead_letters.add(6, 9, code="not_null", name="another")
    done = dead_letters.run("replay", "--yes", "--code", "not_null", "--table", "db.t")
    assert done.status == 0, done.stderr
    assert "2 were put back" in done.stdout
    assert "4 were skipped for good: filtered" in done.stdout
    assert "3 were skipped for good: other connector" in done.stdout
    assert content(dead_letters.back()) == content(wanted)


def test_dead_letters_without_a_topic_stop_a_replay_before_its_start(
    dead_letters: DeadLetterTool,
) -> None:
    """Without context headers a topic must be given; a missing topic is named."""
    dead_letters.add(0, 2)
    bare = dead_letters.add(2, 3, bare=True)[0]
    refused = dead_letters.run("replay", "--yes")
    assert refused.status == 1
    assert "--topic" in refused.stderr
    assert not dead_letters.back()
    done = dead_letters.run("replay", "--yes", "--topic", dead_letters.source)
    assert done.status == 0, done.stderr
    back = {r.timestamp_ms: r for r in dead_letters.back()}
    assert len(back) == 3
    assert back[TIME_MS + 2].headers == bare.headers
    dead_letters.add(3, 4)
    delete_topic(dead_letters.admin, dead_letters.source)
    refused = dead_letters.run("replay", "--yes")
    assert refused.status == 1
    assert f"goes to topic {dead_letters.source}, partition 1" in refused.stderr


def test_without_context_headers_the_tools_know_the_reason_and_the_source(
    dead_letters: DeadLetterTool,
) -> None:
    """As the default is: no header of Kafka Connect; list, show and replay need none."""
    expected = dead_letters.add(0, 4, context=False)
    listed = dead_letters.run("list")
    kind = f"4 x VALUE_CONVERTER RecordError, table db.t, source topic {dead_letters.source}"
    assert kind in listed.stdout
    displayed = dead_letters.run("show", "0:0")
    assert "__icefloe.errors.exception.message: column=id [table=db.t]" in displayed.stdout
    assert "__icefloe.errors.code: bad_json" in displayed.stdout
    letters = committed_records(dead_letters.kafka, TopicPartition(dead_letters.topic, 0))
    names = {name for letter in letters for name, _ in letter.headers[-9:]}
    assert {name.rpartition("errors.")[0] for name in names} == {"__icefloe."}
    assert dead_letters.run("replay", "--yes").status == 0
    assert content(dead_letters.back()) == content(expected)
    dead_letters.add(4, 6, context=False)
    listed = dead_letters.run("list")
    assert "6 x VALUE_CONVERTER" in listed.stdout
    assert ", 4 of them replayed or skipped by a replay" in listed.stdout


def test_list_and_show_hide_the_content_by_default(dead_letters: DeadLetterTool) -> None:
    """Counts, first and last position, headers and sizes; key and value on request."""
    dead_letters.add(0, 5)
    dead_letters.add(5, 7, bare=True)
    listed = dead_letters.run("list")
    assert "7 dead letters" in listed.stdout
    kind = f"5 x VALUE_CONVERTER RecordError, table db.t, source topic {dead_letters.source}"
    first, last = "first 0:0 (2023-11-14T22:13:20Z, source 0:0)", "last 0:4 "
    assert f"{kind}: {first}, {last}" in listed.stdout
    assert "no replay" not in listed.stdout
    found = json.loads(dead_letters.run("list", "-o", "json").stdout)
    kinds = {kind["stage"]: kind for kind in found["kinds"]}
    assert {stage: kind["records"] for stage, kind in kinds.items()} == {
        "VALUE_CONVERTER": 5,
        None: 2,
    }
    source = {"topic": dead_letters.source, "partition": 0, "offset": 0}
    assert kinds["VALUE_CONVERTER"]["first"] == {
        "partition": 0,
        "offset": 0,
        "time": "2023-11-14T22:13:20Z",
        "source": source,
    }
    assert kinds[None]["first"]["source"] is None
    assert {kind["replayed"] for kind in found["kinds"]} == {0}
    assert kinds["VALUE_CONVERTER"]["last"]["offset"] == 4
    displayed = dead_letters.run("show", "0:1")
    assert f"__connect.errors.topic: {dead_letters.source}" in displayed.stdout
    assert f"value: {len(CONTENT) + 2} bytes" in displayed.stdout
    assert "header h: null" in displayed.stdout
    with_content = dead_letters.run("show", "0:1", "--content")
    assert f"{CONTENT} 1" in with_content.stdout
    assert "\x00" not in with_content.stdout
    result = listed.stdout + listed.stderr + json.dumps(found)
    assert CONTENT not in result
    for wrong, status, reason in (
        ("0:99", 1, "has no dead letter of"),
        ("9:0", 1, "has no dead letter of"),
        ("x", 2, "PARTITION"),
    ):
        failed = dead_letters.run("show", wrong)
        assert failed.status == status
        assert reason in failed.stderr
