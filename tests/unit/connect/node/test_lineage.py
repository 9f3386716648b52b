"""Runs of connectors as lineage events, and their way to a receiver that fails or hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError, RetriableError
from connect.metrics.process_metrics import Exposition
from connect.model.layout import Layout, TopicPartition
from connect.model.lineage_event import DatasetName, LineageEvent
from connect.node.herder.units.units import ConnectorRun
from connect.node.lineage.lineage_reporter import LineageReporter
from connect.node.lineage.lineage_runs import (
    PROCESS_ENDED,
    TABLES_PER_EVENT_MAX,
    ColumnMapping,
    ConnectorFacts,
    LineageRuns,
    connector_facts,
)
from connect.redaction.secret_values import KNOWN, MASK
from connect.state.connector_state import StoredConnector
from tests.support.lineage_samples import (
    COMMIT_ID,
    SNAPSHOT_ID,
    VALID_THROUGH_US,
    LineageReceiver,
    described,
    round_ended,
    state,
)

FACTS = ConnectorFacts("b:9092,c:9092", frozenset({"orders"}), ColumnMapping.of({}))


class SteppedClock(SystemClock):
    """Time that passes when the test says so."""

    now = 1_000_000

    def now_ms(self) -> int:
        """The instant that is set."""
        return self.now

    def monotonic_ms(self) -> int:
        """The same."""
        return self.now


class Runs:
    """Runs with the events that they emit."""

    def __init__(self, facts: ConnectorFacts | None = FACTS) -> None:
        self.clock = SteppedClock()
        self.emitted: list[LineageEvent] = []
        self.runs = LineageRuns(
            "g", lambda _: facts, self.clock, interval_ms=60_000, emit=self.emitted.append
        )

    def receive(self, *events: dict[str, Any], child: str = "coordinator") -> None:
        """Events of a child process."""
        for event in events:
            self.runs.received(child, event)

    @property
    def kinds(self) -> list[str]:
        """Types of the events so far."""
        return [event.kind for event in self.emitted]


def test_a_run_starts_once_and_completes_with_its_totals() -> None:
    """One id; inputs from the start on; rows and bytes of all rounds since the last event."""
    runs = Runs()
    runs.receive(state("STARTING"), state("RUNNING"), described(), state("RUNNING"))
    runs.receive(round_ended(5), round_ended(7, valid_through_us=None), state("STOPPED"))
    start, complete = runs.emitted
    assert (start.kind, complete.kind) == ("START", "COMPLETE")
    assert start.run_id == complete.run_id
    assert (start.namespace, start.job, start.time_ms) == ("g", "c", 1_000_000)
    assert [(*i.dataset, i.records) for i in start.inputs] == [("kafka://b:9092", "orders", None)]
    assert start.outputs == ()
    assert [i.records for i in complete.inputs] == [12]
    (table,) = complete.outputs
    assert table.commit is not None
    assert (table.commit.records, table.commit.files, table.commit.size_bytes) == (12, 4, 1200)
    assert (table.commit.commits, table.commit.snapshot_id) == (2, SNAPSHOT_ID)
    assert (table.commit.commit_id, table.commit.valid_through_us) == (COMMIT_ID, VALID_THROUGH_US)
    runs.receive(round_ended(1), state("STOPPED"))
    assert runs.kinds == ["START", "COMPLETE"]


def test_a_run_reports_at_most_once_an_interval() -> None:
    """Nothing without a commit; sums start again after each event; only tables with a commit."""
    runs = Runs()
    runs.receive(state("RUNNING"), described(), described("db.u"), round_ended(5))
    runs.runs.emit_due()
    assert runs.kinds == ["START"]
    runs.clock.now += 60_000
    runs.receive(round_ended(6))
    runs.runs.emit_due()
    runs.receive(round_ended(7))
    runs.runs.emit_due()
    running = runs.emitted[1]
    assert [o.description.name for o in running.outputs] == ["db.t"]
    assert running.outputs[0].commit is not None
    assert running.outputs[0].commit.records == 11
    runs.clock.now += 60_000
    runs.runs.emit_due()
    runs.clock.now += 60_000
    runs.runs.emit_due()
    assert runs.kinds == ["START", "RUNNING", "RUNNING"]
    assert runs.emitted[2].outputs[0].commit is not None
    assert runs.emitted[2].outputs[0].commit.records == 7
    runs.receive(state("STOPPED"))
    assert [o.description.name for o in runs.emitted[3].outputs] == ["db.t", "db.u"]
    assert [o.commit for o in runs.emitted[3].outputs] == [None, None]


def test_a_failure_ends_the_run_without_secrets() -> None:
    """And the restart is a run of its own; late reports of an earlier start change nothing."""
    KNOWN.add("lineage-secret-1")
    runs = Runs()
    runs.receive(state("RUNNING"), state("FAILED", trace="DataLost: lineage-secret-1\nstack"))
    runs.receive(state("RUNNING", 2), state("STOPPED", 1), state("FAILED", 1))
    assert runs.kinds == ["START", "FAIL", "START"]
    assert runs.emitted[1].error == f"DataLost: {MASK}\nstack"
    assert runs.emitted[1].run_id != runs.emitted[2].run_id


def test_other_ends_of_a_run() -> None:
    """A complete bounded run, a process that ended, a node that ends."""
    runs = Runs()
    runs.receive(state("RUNNING"), {"event": "completed", "connector": "c"}, state("STOPPED"))
    runs.receive(state("RUNNING", 2), {"event": "exited", "status": -9, "trace": ""})
    runs.receive(state("RUNNING", 3))
    runs.runs.abort_all()
    assert runs.kinds == ["START", "COMPLETE", "START", "FAIL", "START", "ABORT"]
    assert runs.emitted[3].error == PROCESS_ENDED


def test_tasks_and_connectors_without_lineage_send_nothing() -> None:
    """States of tasks, events of the worker, and a connector that has opted out."""
    runs = Runs()
    runs.receive(state("RUNNING"), child="worker")
    runs.receive(state("RUNNING", task=0), round_ended(), described())
    without = Runs(facts=None)
    without.receive(state("RUNNING"), described(), round_ended(), state("STOPPED"))
    assert (runs.emitted, without.emitted) == ([], [])


def test_topics_that_receive_rows_are_outputs() -> None:
    """Of each event, once; a connector without tables reports that it has read something."""
    topics = frozenset({"b", "a"})
    runs = Runs(replace(FACTS, output_servers="o:9092", output_topics=topics))
    runs.receive(state("RUNNING"))
    runs.clock.now += 60_000
    runs.runs.emit_due()
    assert runs.kinds == ["START"]
    runs.receive(round_ended(5, tables=[]), round_ended(0, tables=[]))
    runs.runs.emit_due()
    runs.clock.now += 60_000
    runs.receive(round_ended(0, tables=[]))
    runs.runs.emit_due()
    runs.receive(*(described(f"db.t{n}") for n in range(TABLES_PER_EVENT_MAX + 1)))
    runs.receive(state("STOPPED"))
    assert runs.kinds == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    expected = (DatasetName("kafka://o:9092", "a"), DatasetName("kafka://o:9092", "b"))
    found = [event.output_topics for event in runs.emitted]
    assert found == [expected, expected, (), expected]


@pytest.mark.parametrize(
    ("config", "servers", "topics"),
    [
        ({}, "node:1", set()),
        ({"icefloe.outputs": "x", "icefloe.output.x.topic": "${late}"}, "node:1", {"late"}),
        (
            {
                "icefloe.outputs": "x, y,web",
                "icefloe.output.x.topic": "tx",
                "icefloe.output.y.topic": "${missing}",
                "icefloe.output.web.webhook.url": "http://w",
                "icefloe.output.unused.topic": "tu",
                "producer.override.bootstrap.servers": "own:1",
                "consumer.override.bootstrap.servers": "read:1",
            },
            "own:1",
            {"tx"},
        ),
        (
            {
                "icefloe.format": "aggregate",
                "icefloe.aggregate.topic": "counts",
                "iceberg.kafka.bootstrap.servers": "ice:1",
                "producer.override.bootstrap.servers": "own:1",
            },
            "ice:1",
            {"counts"},
        ),
    ],
)
def test_facts_of_topics_that_receive_rows(
    config: dict[str, str], servers: str, topics: set[str]
) -> None:
    """Named outputs and aggregates, on the servers of the producer."""

    def resolve(text: str) -> str:
        if text == "${missing}":
            raise ConfigError("no value", code="placeholder")
        return text.strip("${}")

    facts = connector_facts(
        StoredConnector("c", config), None, {"bootstrap.servers": "node:1"}, resolve
    )
    assert facts is not None
    assert (facts.output_servers, facts.output_topics) == (servers, topics)


def test_many_tables_are_divided() -> None:
    """Into events that a receiver accepts; only the last one ends the run."""
    runs = Runs()
    runs.receive(state("RUNNING"))
    runs.receive(*(described(f"db.t{n}") for n in range(TABLES_PER_EVENT_MAX + 1)))
    runs.receive(state("FAILED", trace="why"))
    assert runs.kinds == ["START", "RUNNING", "FAIL"]
    assert [len(event.outputs) for event in runs.emitted] == [0, TABLES_PER_EVENT_MAX, 1]
    assert [event.error for event in runs.emitted] == [None, None, "why"]


@pytest.mark.parametrize(
    ("config", "topics", "expected"),
    [
        ({}, 1, ("id", "at", "_kafka_metadata_offset")),
        ({}, 2, ()),
        ({"iceberg.tables": "db.t"}, 2, ("id", "at", "_kafka_metadata_offset")),
        ({"iceberg.tables": "db.t", "iceberg.tables.dynamic-enabled": "TRUE"}, 2, ()),
        ({"iceberg.tables": "db.t,db.u"}, 2, ()),
        (
            {
                "transforms": "f, k, i, m",
                "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
                "transforms.k.type": "org.apache.kafka.connect.transforms.ReplaceField$Key",
                "transforms.i.type": "org.apache.kafka.connect.transforms.InsertField$Value",
                "transforms.i.timestamp.field": "at!",
                "transforms.m.type": "org.apache.iceberg.connect.transforms.KafkaMetadataTransform",
            },
            1,
            ("id",),
        ),
        (
            {
                "transforms": "r",
                "transforms.r.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
            },
            1,
            (),
        ),
    ],
)
def test_only_columns_that_are_known_are_mapped(
    config: dict[str, str], topics: int, expected: tuple[str, ...]
) -> None:
    """Not after a transformation that may rename, and not if the topic of a row is not known."""
    mapping = ColumnMapping.of(config)
    assert mapping.identity(("id", "at", "_kafka_metadata_offset"), topics=topics) == expected


def test_facts_of_a_connector() -> None:
    """Topics of its layout, its own brokers, and the opt-out."""
    layout = Layout("c", 1, ((TopicPartition("a", 0),), (TopicPartition("b", 0),)))
    node = {"bootstrap.servers": "node:1"}
    run = ConnectorRun.of("c", BackoffPolicy())
    plain = connector_facts(StoredConnector("c", {}, layout=layout), run, node, str)
    assert plain is not None
    assert (plain.bootstrap_servers, plain.topics) == ("node:1", {"a", "b"})
    assert not plain.is_bounded
    config = {"consumer.override.bootstrap.servers": "${x}"}
    own = connector_facts(StoredConnector("c", config), None, node, lambda t: t.strip("${}"))
    assert own is not None
    assert (own.bootstrap_servers, own.topics) == ("x", frozenset())
    out = StoredConnector("c", {"icefloe.lineage.enabled": "False"}, layout=layout)
    assert connector_facts(out, run, node, str) is None
    assert connector_facts(StoredConnector("c", None), run, node, str) is None


class Receiver:
    """Takes events, raises, or blocks, as a test decides."""

    def __init__(self) -> None:
        self.taken: list[LineageEvent] = []
        self.attempts = 0
        self.error: Exception | None = None
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.was_called = threading.Event()

    def send(self, event: LineageEvent) -> None:
        """One attempt."""
        self.attempts += 1
        self.was_called.set()
        self.may_answer.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(event)


class ReporterHarness:
    """A reporter with a receiver, and its counters."""

    def __init__(self, events_max: int = 10) -> None:
        self.clock = SteppedClock()
        self.receiver = Receiver()
        self.before = _counts()
        self.reporter = LineageReporter(
            self.receiver.send,
            lambda _: FACTS,
            self.clock,
            namespace="g",
            interval_ms=60_000,
            events_max=events_max,
        )

    def run_once(self, generation: int) -> None:
        """A run that starts and stops: two events."""
        for name in ("RUNNING", "STOPPED"):
            self.reporter.received("coordinator", state(name, generation))

    @property
    def counts(self) -> dict[str, float]:
        """What was counted since the harness exists."""
        now = _counts()
        changed = {name: now[name] - self.before.get(name, 0) for name in now}
        return {name: count for name, count in changed.items() if count}


def _counts() -> dict[str, float]:
    samples = Exposition(lambda: 0).samples()
    return {labels["outcome"]: n for name, labels, n in samples if name == "lineage_events"}


@pytest.fixture
def harness() -> Iterator[ReporterHarness]:
    """A reporter whose receiver is set free at the end."""
    harness = ReporterHarness()
    yield harness
    harness.receiver.may_answer.set()
    if harness.reporter._thread.is_alive():  # it would count events of the next test
        harness.reporter._thread.join()


def test_a_failing_receiver_gets_every_event_in_order_later(
    harness: ReporterHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    """One attempt per pause, which grows; one log line a minute."""
    harness.receiver.error = RetriableError("no answer", code="lineage_unavailable")
    harness.run_once(1)
    for _ in range(58):
        harness.reporter.turn()
        harness.clock.now += 1_000
    assert harness.receiver.attempts == 6
    assert harness.counts == {"failed": 6}
    assert capsys.readouterr().out.count("lineage event not sent") == 1
    harness.clock.now += 60_000
    harness.reporter.turn()
    assert capsys.readouterr().out.count("lineage event not sent") == 1
    harness.receiver.error = None
    harness.clock.now += 60_000
    harness.reporter.turn()
    assert [event.kind for event in harness.receiver.taken] == ["START", "COMPLETE"]
    assert harness.counts == {"failed": 7, "sent": 2}


def test_a_refused_event_does_not_hold_up_the_next_ones(harness: ReporterHarness) -> None:
    """It is counted and given up."""
    harness.receiver.error = ConfigError("HTTP 400", code="lineage_refused")
    harness.run_once(1)
    harness.reporter.turn()
    harness.receiver.error = None
    harness.run_once(2)
    harness.reporter.turn()
    assert len(harness.receiver.taken) == 2
    assert harness.counts == {"refused": 2, "sent": 2}


def test_a_receiver_that_hangs_holds_up_no_caller(harness: ReporterHarness) -> None:
    """Events wait up to the bound, more are dropped and counted, and the end is not held up."""
    harness.reporter._close_timeout_s = 0.1
    harness.receiver.may_answer.clear()
    harness.reporter.start()
    harness.run_once(1)
    assert harness.receiver.was_called.wait(60)
    for generation in range(2, 10):
        harness.run_once(generation)
    assert harness.counts == {"dropped": 8}
    assert harness.receiver.attempts == 1
    harness.reporter.close()  # returns while the receiver hangs
    assert harness.receiver.taken == []
    assert harness.counts == {"dropped": 18}


def test_the_end_of_a_node_sends_what_waits(harness: ReporterHarness) -> None:
    """With an end of each run that did not report one."""
    harness.reporter.start()
    harness.reporter.received("coordinator", state("RUNNING"))
    harness.reporter.stop()
    harness.reporter.close()
    assert [event.kind for event in harness.receiver.taken] == ["START", "ABORT"]
    assert harness.counts == {"sent": 2}


NODE = {
    "bootstrap.servers": "b:1",
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
}


def made(environ: dict[str, str] | None = None, **options: str) -> LineageReporter | None:
    """The reporter of a node with these options, which are named as in the file below lineage."""
    properties = {f"icefloe.lineage.{k.replace('-', '.')}": v for k, v in options.items()}
    given = {**NODE, **properties}
    config = NodeConfig.from_properties(given)
    return LineageReporter.of(config, given, environ or {}, lambda _: FACTS, SystemClock())


def test_a_node_sends_no_lineage_unless_it_is_enabled() -> None:
    """Off by default."""
    assert made() is None
    assert made(**{"transport-url": "http://x"}) is None


@pytest.mark.parametrize("kind", ["http", "kafka", "file"])
def test_a_transport_needs_its_target(kind: str) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError, match=r"set icefloe\.lineage\.transport\.\w+") as raised:
        made(enabled="true", **{"transport-type": kind})
    assert raised.value.code == "lineage"


def test_options_come_from_keys_or_from_openlineages_variables(tmp_path: Path) -> None:
    """Keys win; a path, a key and a namespace reach the receiver; a file has a line per event."""
    receiver = LineageReceiver()
    try:
        by_variables = made(
            {
                "OPENLINEAGE_URL": receiver.url,
                "OPENLINEAGE_ENDPOINT": "in/events",
                "OPENLINEAGE_API_KEY": "lineage-key-1",
            },
            enabled="true",
        )
        by_keys = made(
            {"OPENLINEAGE_URL": "http://127.0.0.1:1", "OPENLINEAGE_API_KEY": "other"},
            **{
                "enabled": "true",
                "namespace": "prod",
                "transport-url": receiver.url,
                "transport-auth-apikey": "lineage-key-2",
                "transport-compression": "gzip",
            },
        )
        for reporter in (by_variables, by_keys):
            assert reporter is not None
            reporter.received("coordinator", state("RUNNING"))
            reporter.turn()
        assert receiver.paths == ["/in/events", "/api/v1/lineage"]
        keys = [headers["authorization"] for headers in receiver.headers]
        assert keys == ["Bearer lineage-key-1", "Bearer lineage-key-2"]
        assert [event["job"]["namespace"] for event in receiver.events] == ["g", "prod"]
        assert KNOWN.mask("lineage-key-1 lineage-key-2") == f"{MASK} {MASK}"
    finally:
        receiver.close()
    file = tmp_path / "events.jsonl"
    options = {"transport-type": "file", "transport-log_file_path": str(file)}
    to_file = made(enabled="true", **options)
    assert to_file is not None
    for name in ("RUNNING", "STOPPED"):
        to_file.received("coordinator", state(name))
    to_file.turn()
    lines = file.read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]
