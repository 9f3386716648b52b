"""A table against what was announced for it, on a catalog in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from connect.operations.audit.announced_ranges import Announcement
from connect.operations.audit.audit_report import AuditReport, TableSum
from connect.operations.audit.table_audit import TableAudit
from control_schemas.events import SourceRange

KEY = "kafka.connect.offsets.control-iceberg.connect-orders"
ROUND = UUID(int=1)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    """A table of numbers."""
    catalog = load_catalog(
        "c", type="sql", uri=f"sqlite:///{tmp_path / 'c.db'}", warehouse=f"file://{tmp_path}"
    )
    catalog.create_namespace("db")
    yield catalog.create_table("db.orders", pa.schema([("id", pa.int64())]))
    catalog.close()


def commit(table: Table, rows: int, offset: int | None) -> None:
    """A snapshot with rows; of the sink when it has a control offset."""
    properties = {} if offset is None else {KEY: f'{{"0":{offset}}}'}
    table.append(
        pa.table({"id": pa.array(range(rows), pa.int64())}), snapshot_properties=properties
    )


def announced(*rows: tuple[int, int], uuid: UUID | None = None) -> list[Announcement]:
    """Announcements as (control offset, rows)."""
    return [Announcement(0, offset, ROUND, uuid, count) for offset, count in rows]


def audited(
    table: Table,
    announcements: list[Announcement],
    *,
    log_starts: Mapping[int, int] | None = None,
    log_end: int = 100,
    passed: int = 0,
) -> tuple[AuditReport, TableSum]:
    """The audit of the table alone."""
    audit = AuditReport("orders")
    source = SourceRange("orders", 2, 7, 9, 2, 0, 0, 2, None)
    table_audit = TableAudit(
        audit,
        KEY,
        "main",
        log_starts or {},
        {0: log_end},
        {0: passed},
        lambda ids: [source] * len([*ids]),
    )
    return audit, table_audit.check("db.orders", table, announcements)


def test_each_snapshot_must_contain_its_announced_rows(table: Table) -> None:
    """By control offsets; announcements above the last ones wait."""
    commit(table, 3, 5)
    commit(table, 2, 8)
    audit, report = audited(table, announced((1, 1), (4, 2), (5, 2), (9, 6)), passed=8)
    assert audit.is_sound
    assert (report.announced, report.committed, report.now, report.waiting) == (
        5,
        5,
        5,
        6,
    )


@pytest.mark.parametrize("rows", [2, 4])
def test_a_snapshot_with_other_rows_is_named_with_its_source(table: Table, rows: int) -> None:
    """With the first possible source range and control event."""
    commit(table, 3, 5)
    commit(table, rows, 8)
    audit, _ = audited(table, announced((1, 3), (6, 3)))
    (mismatch,) = audit.mismatches
    assert mismatch.code == "snapshot_differs"
    head = table.current_snapshot()
    assert head is not None
    assert mismatch.where == {
        "table": "db.orders",
        "snapshot_id": head.snapshot_id,
        "topic": "orders",
        "partition": 2,
        "start_offset": 7,
        "end_offset": 9,
        "control_partition": 0,
        "control_offset": 6,
    }


def test_announcements_below_the_group_offset_must_be_committed(table: Table) -> None:
    """The coordinator stored a higher offset, and the table lacks them."""
    commit(table, 3, 5)
    audit, report = audited(table, announced((1, 3), (6, 3), (9, 1)), passed=8)
    assert [m.code for m in audit.mismatches] == ["announcement_lost"]
    assert report.waiting == 1


def test_announcements_that_were_not_read_are_not_checked(table: Table) -> None:
    """Deleted by retention, or younger than the read of the log."""
    commit(table, 3, 5)
    commit(table, 2, 8)
    commit(table, 2, 20)
    audit, report = audited(table, announced((6, 2)), log_starts={0: 3}, log_end=10)
    assert audit.is_sound
    assert (report.unproved, report.committed) == (5, 2)


def test_rows_of_other_writers_are_counted_separately(table: Table) -> None:
    """Also announcements for a missing table."""
    commit(table, 3, 5)
    commit(table, 4, None)
    replaced = announced((2, 9), uuid=UUID(int=9))
    audit, report = audited(table, [*announced((1, 3)), *replaced])
    assert audit.is_sound
    assert audit.changed_by_others
    assert (report.committed, report.others, report.now) == (3, 4, 7)
    assert any(
        "9 rows were announced for a dropped table of the same name" in n for n in audit.notes
    )


def test_all_announcements_of_an_empty_table_wait(table: Table) -> None:
    """Unless the group has passed them."""
    assert audited(table, announced((1, 3)))[0].is_sound
    assert [m.code for m in audited(table, announced((1, 3)), passed=2)[0].mismatches] == [
        "announcement_lost"
    ]
