"""What ``icefloe migrate --check`` finds in prepared states of a real broker and catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog

from connect.cli.migrate_command import lines
from connect.clock import SystemClock
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.operations.connector_clients import opened
from connect.operations.migration.inspector import Inspector
from connect.operations.migration.migration_report import MigrationReport
from control_schemas.codec import encode
from control_schemas.events import DataWritten, Event, TableReference
from tests.support.frames import FILE, old_frame
from tests.support.running_stack import EVENT
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka
CONTROL_TOPIC = "iceberg.control.topic"


class SinkState:
    """One connector's state, as another sink may have left it.

    Args:
        kafka: client properties.
        topics: makes topics.
        catalog: catalog properties.
    """

    def __init__(self, kafka: dict[str, str], topics: Topics, catalog: dict[str, str]) -> None:
        self.name = unique_name("left")
        self.source = topics.create("source", partitions=2)
        self.control = topics.create("control", partitions=2)
        self.table = f"db.{self.name.replace('-', '_')}"
        self.config = {
            "name": self.name,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "topics": self.source,
            "iceberg.tables": self.table,
            CONTROL_TOPIC: self.control,
            **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
        }
        self._kafka = kafka
        self._catalog = load_catalog("iceberg", **catalog)
        self.admin = KafkaAdmin(kafka)

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Append records."""
        producer = Producer({**self._kafka, "log_level": 0})
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(120) == 0

    def announce(self, group: str, partition: int = 0) -> None:
        """Announce one file of three rows."""
        table = TableReference("iceberg", ("db",), self.table.removeprefix("db."), None)
        files = (replace(FILE, file_path=f"file:///x/{uuid4()}.parquet"),)
        event = Event(uuid4(), 1, group, DataWritten(uuid4(), table, files, ()))
        self.write(self.control, encode(event), partition=partition)

    def commit(self, group: str, *, source: int | None = None, control: int | None = None) -> None:
        """Set offsets of a group, in both partitions."""
        for name, topic, offset in (
            (group, self.source, source),
            (f"{group}-coord", self.control, control),
        ):
            if offset is not None:
                both = {TopicPartition(topic, p): offset for p in (0, 1)}
                self.admin.alter_offsets(name, both)

    def lose(self, topic: str) -> None:
        """The first record of a topic, as retention does."""
        self.admin.delete_records({TopicPartition(topic, 0): 1})

    def create_table(self, *, format_version: str = "2", **summary: str) -> None:
        """The table, with an empty snapshot that says what a sink committed."""
        self._catalog.create_namespace_if_not_exists("db")
        table = self._catalog.create_table(
            self.table, EVENT, properties={"format-version": format_version}
        )
        properties = {key.replace("__", "."): value for key, value in summary.items()}
        if properties:
            table.append(EVENT.as_arrow().empty_table(), snapshot_properties=properties)

    def floor(self, group: str) -> str:
        """Name of the snapshot property of a group."""
        return f"kafka.connect.offsets.{self.control}.{group}"

    def inspect(self, **changes: str) -> MigrationReport:
        """Return the report; its text form must end with the verdict."""
        config = {**self.config, **{k.replace("__", "."): v for k, v in changes.items()}}
        with opened(config, self._kafka, {}) as direct:
            report = Inspector(
                direct.config, direct.admin, direct.reader, direct.catalog, SystemClock()
            ).inspect(direct.partitions)
        assert (
            list(lines(report.as_json()))[-1]
            == ("" if report.is_safe else "not ") + "safe to start"
        )
        return report


@pytest.fixture
def state(
    kafka_properties: dict[str, str], topics: Topics, sql_catalog_properties: dict[str, str]
) -> SinkState:
    """A connector that never ran, with its topics."""
    return SinkState(kafka_properties, topics, sql_catalog_properties)


def found(report: MigrationReport) -> dict[str, bool]:
    """Codes, and whether each forbids a start."""
    return {finding.code: finding.is_unsafe for finding in report.findings}


def test_a_first_start_is_safe(state: SinkState) -> None:
    """No offsets and no tables: reading starts at the beginning."""
    state.write(state.source, b"x")
    report = state.inspect()
    assert found(report) == {"no_offsets": False}
    assert {at for at, _ in report.starts.values()} == {0}
    ends = state.inspect(**{"consumer.override.auto.offset.reset": "latest"}).starts
    assert sorted(at for at, _ in ends.values()) == [0, 1]


def test_only_announcements_above_the_floor_are_waiting(state: SinkState) -> None:
    """Not those below the group's offset or the floor, and not those of other groups."""
    group = f"connect-{state.name}"
    state.announce(group)
    state.announce(group)
    state.announce("connect-other")
    state.announce(group)
    state.announce(group, partition=1)
    state.create_table(**{state.floor(group): '{"0":2}', "engine-name": "kafka-connect"})
    state.commit(group, source=0, control=0)
    report = state.inspect()
    assert found(report) == {"pending": False}
    (table,) = report.tables
    assert (table.pending_files, table.pending_records) == (2, 6)
    assert table.writer == "kafka-connect"


def test_announced_files_of_a_missing_table_are_not_safe(state: SinkState) -> None:
    """They would be in no table."""
    state.announce(f"connect-{state.name}")
    state.commit(f"connect-{state.name}", source=0, control=0)
    assert found(state.inspect()) == {"table_missing": True}


@pytest.mark.parametrize(
    ("spoil", "codes"),
    [
        (lambda s, g: s.commit(g, source=5, control=0), {"source_log_reset"}),
        (lambda s, g: s.commit(g, source=0, control=9), {"control_log_reset"}),
        (lambda s, g: s.create_table(**{s.floor(g): '{"1":4}'}), {"control_log_reset"}),
        (lambda s, _: s.lose(s.source), {"source_data_lost"}),
        (lambda s, _: s.lose(s.control), {"control_log_lost"}),
        (lambda s, _: s.config.update({CONTROL_TOPIC: "nowhere"}), {"control_topic_missing"}),
    ],
)
def test_offsets_and_floors_outside_the_topics_are_not_safe(
    state: SinkState, spoil: Callable[[SinkState, str], None], codes: set[str]
) -> None:
    """Offsets and floors outside of what the topics hold."""
    group = f"connect-{state.name}"
    state.write(state.source, b"x")
    state.announce("connect-other")
    state.commit(group, source=0, control=0)
    assert found(state.inspect()) == {}
    spoil(state, group)
    assert {code for code, is_unsafe in found(state.inspect()).items() if is_unsafe} == codes


def test_a_table_with_commits_of_a_group_without_offsets_is_not_safe(state: SinkState) -> None:
    """Its offsets have expired: a start would write all records again."""
    group = f"connect-{state.name}"
    state.create_table(**{state.floor(group): '{"0":0}'})
    assert found(state.inspect()) == {"no_offsets": False, "offsets_lost": True}
    state.commit(group, source=0)
    assert found(state.inspect()) == {"no_control_offsets": False}


def test_old_announcements_are_not_safe(state: SinkState) -> None:
    """The older sink's format is recognised; its other events and other groups do not matter."""
    group = f"cg-control-{state.name}"
    tabular = {"connector.class": "io.tabular.iceberg.connect.IcebergSinkConnector"}
    state.create_table()
    state.commit(group, source=0, control=0)
    state.write(state.control, old_frame("CommitReadyPayload", group), b"garbage")
    state.write(state.control, old_frame("CommitResponsePayload", "cg-control-other"))
    assert found(state.inspect(**tabular)) == {"malformed_events": False}
    state.write(state.control, old_frame("CommitResponsePayload", group), partition=1)
    report = state.inspect(**tabular)
    assert found(report) == {"malformed_events": False, "legacy_announcement": True}
    assert f"{state.control}-1 offset 0" in report.findings[0].text


def test_a_table_of_format_version_1_is_not_safe(state: SinkState) -> None:
    """It cannot be written."""
    state.create_table(format_version="1")
    assert found(state.inspect()) == {"no_offsets": False, "format_version_unsupported": True}
