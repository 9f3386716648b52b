"""Tables that are dropped, restored, replaced, while files for them wait: nothing goes unnamed."""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from control_schemas.events import ContentFile, DataWritten, TableReference
from coordinator.coordinator import ConnectorCoordinator
from coordinator.kernel.effects import TableDecision
from tests.support.coordinator_harness import (
    SCHEMA,
    CoordinatorHarness,
    RunningCoordinator,
    wait_until,
)
from tests.support.tables import reference, written_file

pytestmark = pytest.mark.kafka

U = ("db", "u")


@pytest.fixture
def other(harness: CoordinatorHarness) -> Table:
    """A second table of the connector, which the test damages."""
    harness.config = dataclasses.replace(harness.config, tables=(*harness.config.tables, "db.u"))
    return harness.catalog.create(U, SCHEMA)


def _announce(harness: CoordinatorHarness, table: Table, *ids: int) -> ContentFile:
    """Files of a table under an id that no round has."""
    file = written_file(table, [{"id": i} for i in ids])
    harness.task_producer.transact(
        harness.messages(DataWritten(uuid4(), reference(table), (file,), ())),
        group_id=harness.config.connect_group_id,
        offsets={
            harness.partition: harness.position
        },  # as a task does, or the offsets count as lost
    )
    return file


def _serve(harness: CoordinatorHarness, is_so: Any) -> None:
    """Answer rounds until it is so."""
    for _ in range(100):
        if is_so():
            return
        harness.answer(harness.start_commit())
    raise AssertionError(harness.reported)


def _decide(
    harness: CoordinatorHarness, coordinator: ConnectorCoordinator, action: Any
) -> dict[str, Any]:
    request = str(uuid4())
    coordinator.decide(TableDecision(TableReference("", ("db",), "u"), action, request))
    wait_until(lambda: harness.reported.get("decided", {}).get("request") == request)
    reported: dict[str, Any] = harness.reported["decided"]
    return reported


def _failed(harness: CoordinatorHarness) -> list[dict[str, Any]]:
    failed: list[dict[str, Any]] = harness.reported.get("failed_tables", {}).get("tables", [])
    return failed


def _uncommitted(harness: CoordinatorHarness) -> int:
    """Control events from the group's offset to the log's end."""
    control = TopicPartition(harness.control, 0)
    admin = KafkaAdmin(harness.kafka)
    stored = admin.committed(harness.config.control_group_id, [control])[control]
    end = admin.ends([control])[control]
    admin.close()
    return end - (stored or 0)


def _rows(harness: CoordinatorHarness, name: tuple[str, ...]) -> list[int]:
    return sorted(harness.catalog.load(name).scan().to_arrow()["id"].to_pylist())


def test_a_dropped_table_is_given_up_by_name(harness: CoordinatorHarness, other: Table) -> None:
    """Its files wait while the other table continues; a skip lists them and frees the offsets."""
    coordinator = harness.coordinator()
    with RunningCoordinator(coordinator):
        harness.drop(U)
        file = _announce(harness, other, 7, 8)
        harness.answer(harness.start_commit(), 1)
        _serve(harness, lambda: _failed(harness))
        (failed,) = _failed(harness)
        assert (failed["table"], failed["code"]) == ("db.u", "table_missing")
        assert (failed["files"], failed["records"], failed["retriable"]) == (1, 2, False)
        harness.answer(harness.start_commit(), 2)
        wait_until(lambda: harness.rows() == [1, 2])
        held_back = _uncommitted(harness)
        reported = _decide(harness, coordinator, "skip")
        assert reported["state"] == "done"
        assert reported["skipped"]["paths"] == [file.file_path]
        assert reported["skipped"]["records"] == 2
        _serve(harness, lambda: _uncommitted(harness) < held_back)
        assert _failed(harness) == []
        assert _decide(harness, coordinator, "skip")["state"] == "not_failed"
    assert harness.catalog.load(("db", "t")).io.new_input(file.file_path).exists()


def test_a_restored_table_receives_the_waiting_files(
    harness: CoordinatorHarness, other: Table
) -> None:
    """The table is registered under its name again: retry commits all, also after a crash."""
    with RunningCoordinator(harness.coordinator()):
        harness.drop(U)
        _announce(harness, other, 7)
        _serve(harness, lambda: _failed(harness))
    properties = {k: v for k, v in harness.properties.items() if k != "type"}
    coordinator = harness.coordinator()
    with RunningCoordinator(coordinator):
        harness.reported.clear()
        _announce(harness, other, 8)
        _serve(harness, lambda: _failed(harness))
        assert _failed(harness)[0]["records"] == 2
        SqlCatalog("iceberg", **properties).register_table(U, other.metadata_location)
        assert _decide(harness, coordinator, "retry")["waiting"]["files"] == 2
        _serve(harness, lambda: _rows(harness, U) == [7, 8])
        _serve(harness, lambda: _failed(harness) == [])


def test_files_are_never_added_to_a_recreated_table(
    harness: CoordinatorHarness, other: Table
) -> None:
    """Once the old files are skipped, only new files are added."""
    coordinator = harness.coordinator()
    with RunningCoordinator(coordinator):
        old = _announce(harness, other, 7)
        harness.drop(U)
        new = harness.catalog.create(U, SCHEMA, location=f"{other.location()}-new")
        assert isinstance(new.metadata.table_uuid, UUID)
        _serve(harness, lambda: _failed(harness))
        assert _failed(harness)[0]["code"] == "table_replaced"
        _announce(harness, new, 8)
        _decide(harness, coordinator, "retry")
        _serve(harness, lambda: [t["files"] for t in _failed(harness)] == [2])
        assert _rows(harness, U) == []
        reported = _decide(harness, coordinator, "skip")
        assert reported["skipped"]["paths"] == [old.file_path]
        assert reported["waiting"]["files"] == 1
        _serve(harness, lambda: _rows(harness, U) == [8])
