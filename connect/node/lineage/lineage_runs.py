"""The runs of connectors on this node, found in the events of the coordinator process. Pure.

Rules of this file:
- A run begins when a coordinator of this node runs, and ends when it stops or fails, when its
  bounded run is complete, or when its process has ended. Each run has an id of its own.
- Nothing waits or grows without bound: what was committed is summed up until the next event.
- An event of a connector that runs has the tables that were committed to since the last event, the
  last event has all of them. Events with many tables are divided, because receivers limit sizes.
- Topics that receive rows are in every event: the configuration names them.
- No mapping of columns is guessed. If a transformation may rename or compute fields, no column is
  mapped. If the records of several topics may go to several tables, no topic is named. Only columns
  at the top level are mapped, with everything inside of them.
- Called from the threads that read the child processes, and from the thread that sends.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from connect.clock import Clock
from connect.config.reserved_topics import output_topics
from connect.errors import IcefloeError
from connect.model.lineage_event import (
    DatasetName,
    EventKind,
    InputTopic,
    LineageEvent,
    OutputTable,
    TableTotals,
    topic_dataset,
)
from connect.model.table_description import TableDescription
from connect.node.herder.units.units import ConnectorRun
from connect.processes.coordinator_names import is_coordinator
from connect.redaction.secret_values import KNOWN
from connect.state.connector_state import StoredConnector

_KEEPING: Final = frozenset(
    {"DropHeaders", "Filter", "InsertHeader", "RegexRouter", "SetSchemaMetadata", "TimestampRouter"}
)
"""Transformations that change neither names nor values of fields."""
_INSERTED: Final = ("topic", "partition", "offset", "timestamp", "static")
_METADATA_FIELD: Final = "_kafka_metadata"


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """What is known of the columns of one connector.

    Attributes:
        is_known: no transformation renames or computes fields, except those in ``added``.
        added: columns that a transformation adds.
        prefixes: of further columns that a transformation adds.
        has_one_table: every topic goes to the same table.
    """

    is_known: bool
    added: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    has_one_table: bool = False

    @classmethod
    def of(cls, config: Mapping[str, str]) -> ColumnMapping:
        """Return what a configuration says, as it was sent."""
        added: set[str] = set()
        prefixes: list[str] = []
        tables = _listed(config.get("iceberg.tables", ""))
        is_dynamic = config.get("iceberg.tables.dynamic-enabled", "").strip().lower() == "true"
        has_one_table = len(tables) == 1 and not is_dynamic
        for alias in _listed(config.get("transforms", "")):
            prefix = f"transforms.{alias}."
            base, _, side = config.get(f"{prefix}type", "").rpartition(".")[2].partition("$")
            if side == "Key" or base in _KEEPING:
                continue
            if base == "InsertField":
                fields = (config.get(f"{prefix}{kind}.field", "") for kind in _INSERTED)
                added |= {field.strip().rstrip("!?") for field in fields}
            elif base == "KafkaMetadataTransform":
                prefixes.append(config.get(f"{prefix}field_name", _METADATA_FIELD))
            else:
                return cls(is_known=False)
        return cls(
            is_known=True,
            added=frozenset(added),
            prefixes=tuple(prefixes),
            has_one_table=has_one_table,
        )

    def identity(self, columns: Iterable[str], *, topics: int) -> tuple[str, ...]:
        """Return the columns that hold the field of their name.

        Args:
            columns: of a table, at the top level.
            topics: number of source topics.
        """
        if not self.is_known or (topics > 1 and not self.has_one_table):
            return ()
        return tuple(c for c in columns if c not in self.added and not c.startswith(self.prefixes))


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


TABLES_MAX: Final = 1_000
TABLES_PER_EVENT_MAX: Final = 100
TOPICS_MAX: Final = 10_000
ERROR_CHARACTERS_MAX: Final = 4_000
PROCESS_ENDED: Final = "the coordinator process ended"
_BOOTSTRAP: Final = "bootstrap.servers"
_READING: Final = ("consumer.override.", "iceberg.kafka.")
_WRITING: Final = ("iceberg.kafka.", "producer.override.")


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """What a node knows of a connector when its run begins.

    Attributes:
        bootstrap_servers: of the source topics.
        topics: that it reads.
        mapping: of the columns of its tables.
        is_bounded: the run ends at fixed offsets.
        output_servers: of the topics that it writes.
        output_topics: that receive its rows or aggregates.
    """

    bootstrap_servers: str
    topics: frozenset[str]
    mapping: ColumnMapping
    is_bounded: bool = False
    output_servers: str = ""
    output_topics: frozenset[str] = frozenset()


def connector_facts(
    stored: StoredConnector,
    run: ConnectorRun | None,
    node: Mapping[str, str],
    resolve: Callable[[str], str],
) -> ConnectorFacts | None:
    """Return what lineage events say of a connector; None if it is to send none.

    Args:
        stored: its state in the config topic.
        run: what runs on this node.
        node: the node's properties, placeholders resolved.
        resolve: resolves the placeholders in a text.
    """
    config = stored.config
    if config is None or config.get("icefloe.lineage.enabled", "").strip().lower() == "false":
        return None

    def servers(prefixes: tuple[str, ...], client: str) -> str:
        of_node = node.get(client + _BOOTSTRAP) or node[_BOOTSTRAP]
        overrides = (config.get(prefix + _BOOTSTRAP) for prefix in prefixes)
        addresses = next(filter(None, overrides), of_node)
        with contextlib.suppress(IcefloeError):  # the connector will fail for the same reason
            addresses = resolve(addresses)
        return addresses

    written = set()
    for topic in output_topics([config]):
        with contextlib.suppress(IcefloeError):
            written.add(resolve(topic).strip())
    layout = (run.layout if run is not None else None) or stored.layout
    topics = frozenset(tp.topic for tp in layout.partitions) if layout is not None else frozenset()
    return ConnectorFacts(
        servers(_READING, "consumer."),
        topics,
        ColumnMapping.of(config),
        is_bounded=run is not None and run.ends is not None,
        output_servers=servers(_WRITING, "producer."),
        output_topics=frozenset(written),
    )


@dataclass(slots=True)
class _Run:
    """One run that has begun.

    Attributes:
        run_id: in all its events.
        process: name of the process of its coordinator.
        generation: of the coordinator's start.
        facts: of the connector.
        sent_ms: monotonic time of its last event.
        topics: all that it has read or will read.
        tables: by name, as described.
        read: records by topic since the last event.
        committed: by table since the last event.
    """

    run_id: UUID
    process: str
    generation: int
    facts: ConnectorFacts
    sent_ms: int
    topics: set[str]
    tables: dict[str, TableDescription] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    committed: dict[str, TableTotals] = field(default_factory=dict)

    def add_description(self, table: TableDescription) -> None:
        """Take the description of a table."""
        if table.name in self.tables or len(self.tables) < TABLES_MAX:
            self.tables[table.name] = table

    def add_round(self, event: Mapping[str, Any]) -> None:
        """Add what a round read and committed."""
        for topic, records in event.get("topic_records", {}).items():
            if topic in self.topics or len(self.topics) < TOPICS_MAX:
                self.topics.add(topic)
                self.read[topic] = self.read.get(topic, 0) + records
        for table in event.get("tables", ()):
            name = table["table"]
            if table.get("snapshot_id") is not None and name in self.tables:
                totals = TableTotals(
                    table["records"],
                    table["files"],
                    table.get("bytes", 0),
                    1,
                    table["snapshot_id"],
                    event["commit_id"],
                    event.get("valid_through_us"),
                )
                self.committed[name] = totals.after(self.committed.get(name))

    def inputs(self) -> tuple[InputTopic, ...]:
        """Return the source topics with what was read since the last event."""
        return tuple(
            InputTopic(self._dataset(topic), self.read.get(topic)) for topic in sorted(self.topics)
        )

    def outputs(self, *, has_all: bool) -> list[OutputTable]:
        """Return the tables with what was committed since the last event.

        Args:
            has_all: with the tables to which nothing was committed.
        """
        sources = tuple(self._dataset(topic) for topic in sorted(self.topics))
        outputs = []
        for name in sorted(self.tables if has_all else self.committed):
            table = self.tables[name]
            columns = (column.name for column in table.columns)
            identity = self.facts.mapping.identity(columns, topics=len(sources))
            outputs.append(OutputTable(table, identity, sources, self.committed.get(name)))
        return outputs

    def output_topics(self) -> tuple[DatasetName, ...]:
        """Return the topics that receive rows or aggregates."""
        facts = self.facts
        return tuple(topic_dataset(facts.output_servers, t) for t in sorted(facts.output_topics))

    @property
    def has_news(self) -> bool:
        """Whether tables were committed to since the last event, or rows were sent to topics."""
        return bool(self.committed or (self.facts.output_topics and any(self.read.values())))

    def _dataset(self, topic: str) -> DatasetName:
        return topic_dataset(self.facts.bootstrap_servers, topic)


class LineageRuns:
    """Makes the events of all runs of a node. Thread-safe.

    Args:
        namespace: of the jobs.
        facts: returns what is known of a connector; None if it sends no lineage.
        interval_ms: shortest time between two events of a connector that runs.
        emit: takes each event, in order; must not block.
    """

    def __init__(
        self,
        namespace: str,
        facts: Callable[[str], ConnectorFacts | None],
        clock: Clock,
        *,
        interval_ms: int,
        emit: Callable[[LineageEvent], None],
    ) -> None:
        self._namespace = namespace
        self._facts = facts
        self._clock = clock
        self._interval_ms = interval_ms
        self._emit = emit
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def received(self, child: str, event: Mapping[str, Any]) -> None:
        """Take an event of a child process."""
        if not is_coordinator(child):
            return
        with self._lock:
            match event.get("event"):
                case "state" if event.get("task") is None:
                    self._on_state(child, event)
                case "round" if (run := self._runs.get(event["connector"])) is not None:
                    run.add_round(event)
                case "table_described" if (run := self._runs.get(event["connector"])) is not None:
                    run.add_description(TableDescription.from_json(event))
                case "completed":
                    self._end(event["connector"], "COMPLETE")
                case "exited":
                    for name in [n for n, run in self._runs.items() if run.process == child]:
                        self._end(name, "FAIL", PROCESS_ENDED)

    def emit_due(self) -> None:
        """Emit an event of each run that has committed something and sent none for a while."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            for name, run in self._runs.items():
                if run.has_news and now_ms - run.sent_ms >= self._interval_ms:
                    self._emit_of(name, run, "RUNNING")

    def abort_all(self) -> None:
        """End all runs: the node ends, and these coordinators did not report that they stopped."""
        with self._lock:
            for name in list(self._runs):
                self._end(name, "ABORT")

    def _on_state(self, child: str, event: Mapping[str, Any]) -> None:
        name, state, run = event["connector"], event["state"], self._runs.get(event["connector"])
        if run is not None and event["generation"] < run.generation:
            return
        if state == "FAILED":
            self._end(name, "FAIL", str(event.get("trace") or event.get("code") or "unexpected"))
        elif event["ended"]:
            self._end(name, "COMPLETE")
        elif state == "RUNNING":
            self._running(name, child, event["generation"])

    def _running(self, name: str, process: str, generation: int) -> None:
        run = self._runs.get(name)
        if run is not None:
            run.process, run.generation = process, generation
        elif (facts := self._facts(name)) is not None:
            now_ms = self._clock.monotonic_ms()
            new_id = self._clock.new_timed_uuid()
            topics = set(facts.topics)
            run = self._runs[name] = _Run(new_id, process, generation, facts, now_ms, topics)
            self._emit_of(name, run, "START")

    def _end(self, name: str, kind: EventKind, error: str | None = None) -> None:
        run = self._runs.pop(name, None)
        if run is not None:
            self._emit_of(name, run, kind, error)

    def _emit_of(self, name: str, run: _Run, kind: EventKind, error: str | None = None) -> None:
        event = LineageEvent(
            kind,
            self._namespace,
            name,
            run.run_id,
            self._clock.now_ms(),
            run.facts.is_bounded,
            run.inputs(),
            output_topics=run.output_topics(),
            error=None if error is None else KNOWN.mask(error)[:ERROR_CHARACTERS_MAX],
        )
        outputs = run.outputs(has_all=kind != "RUNNING")
        while len(outputs) > TABLES_PER_EVENT_MAX:
            part, outputs = outputs[:TABLES_PER_EVENT_MAX], outputs[TABLES_PER_EVENT_MAX:]
            some = replace(event, kind="RUNNING", inputs=(), outputs=tuple(part), error=None)
            self._emit(replace(some, output_topics=()))
        run.sent_ms = self._clock.monotonic_ms()
        run.read = {}
        run.committed = {}
        self._emit(replace(event, outputs=tuple(outputs)))
