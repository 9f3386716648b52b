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
from tests.support.coordinator_bench import SCHEMA, Bench, Running, until
from tests.support.tables import reference, written_file

pytestmark = pytest.mark.kafka

U = ("db", "u")


@pytest.fixture
def other(bench: Bench) -> Table:
    """A second table of the connector, which comes to harm."""
    bench.config = dataclasses.replace(bench.config, tables=(*bench.config.tables, "db.u"))
    return bench.catalog.create(U, SCHEMA)


def _announce(bench: Bench, table: Table, *ids: int) -> ContentFile:
    """Files of a table under an id that no round has."""
    file = written_file(table, [{"id": i} for i in ids])
    bench.hand.transact(
        bench.messages(DataWritten(uuid4(), reference(table), (file,), ())),
        group_id=bench.config.connect_group_id,
        offsets={bench.partition: bench.position},  # as a task does, or the offsets count as lost
    )
    return file


def _serve(bench: Bench, is_so: Any) -> None:
    """Answer rounds until it is so."""
    for _ in range(100):
        if is_so():
            return
        bench.answer(bench.start_commit())
    raise AssertionError(bench.reported)


def _decide(bench: Bench, coordinator: ConnectorCoordinator, action: Any) -> dict[str, Any]:
    request = str(uuid4())
    coordinator.decide(TableDecision(TableReference("", ("db",), "u"), action, request))
    until(lambda: bench.reported.get("decided", {}).get("request") == request)
    reported: dict[str, Any] = bench.reported["decided"]
    return reported


def _failed(bench: Bench) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bench.reported.get("failed_tables", {}).get("tables", [])
    return found


def _uncommitted(bench: Bench) -> int:
    """Control events from the group's offset to the log's end."""
    control = TopicPartition(bench.control, 0)
    admin = KafkaAdmin(bench.kafka)
    stored = admin.committed(bench.config.control_group_id, [control])[control]
    end = admin.ends([control])[control]
    admin.close()
    return end - (stored or 0)


def _rows(bench: Bench, name: tuple[str, ...]) -> list[int]:
    return sorted(bench.catalog.load(name).scan().to_arrow()["id"].to_pylist())


def test_a_dropped_table_is_given_up_by_name(bench: Bench, other: Table) -> None:
    """Its files wait, the other table continues; a skip lists the files and frees offsets."""
    coordinator = bench.coordinator()
    with Running(coordinator):
        bench.drop(U)
        file = _announce(bench, other, 7, 8)
        bench.answer(bench.start_commit(), 1)
        _serve(bench, lambda: _failed(bench))
        (failed,) = _failed(bench)
        assert (failed["table"], failed["code"]) == ("db.u", "table_missing")
        assert (failed["files"], failed["records"], failed["retriable"]) == (1, 2, False)
        bench.answer(bench.start_commit(), 2)
        until(lambda: bench.rows() == [1, 2])
        held_back = _uncommitted(bench)
        reported = _decide(bench, coordinator, "skip")
        assert reported["state"] == "done"
        assert reported["skipped"]["paths"] == [file.file_path]
        assert reported["skipped"]["records"] == 2
        _serve(bench, lambda: _uncommitted(bench) < held_back)
        assert _failed(bench) == []
        assert _decide(bench, coordinator, "skip")["state"] == "not_failed"
    assert bench.catalog.load(("db", "t")).io.new_input(file.file_path).exists()


def test_a_restored_table_takes_what_waited(bench: Bench, other: Table) -> None:
    """The table is registered again under its name: retry commits every row, also after a crash."""
    with Running(bench.coordinator()):
        bench.drop(U)
        _announce(bench, other, 7)
        _serve(bench, lambda: _failed(bench))
    properties = {k: v for k, v in bench.properties.items() if k != "type"}
    coordinator = bench.coordinator()
    with Running(coordinator):
        bench.reported.clear()
        _announce(bench, other, 8)
        _serve(bench, lambda: _failed(bench))
        assert _failed(bench)[0]["records"] == 2
        SqlCatalog("iceberg", **properties).register_table(U, other.metadata_location)
        assert _decide(bench, coordinator, "retry")["waiting"]["files"] == 2
        _serve(bench, lambda: _rows(bench, U) == [7, 8])
        _serve(bench, lambda: _failed(bench) == [])


def test_files_never_go_into_another_table_of_the_name(bench: Bench, other: Table) -> None:
    """A recreated table is another table: once old files are skipped, only new files are added."""
    coordinator = bench.coordinator()
    with Running(coordinator):
        old = _announce(bench, other, 7)
        bench.drop(U)
        new = bench.catalog.create(U, SCHEMA, location=f"{other.location()}-new")
        assert isinstance(new.metadata.table_uuid, UUID)
        _serve(bench, lambda: _failed(bench))
        assert _failed(bench)[0]["code"] == "table_replaced"
        _announce(bench, new, 8)
        _decide(bench, coordinator, "retry")
        _serve(bench, lambda: [t["files"] for t in _failed(bench)] == [2])
        assert _rows(bench, U) == []
        reported = _decide(bench, coordinator, "skip")
        assert reported["skipped"]["paths"] == [old.file_path]
        assert reported["waiting"]["files"] == 1
        _serve(bench, lambda: _rows(bench, U) == [8])
