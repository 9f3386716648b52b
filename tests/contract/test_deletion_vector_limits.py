"""Deletion vectors beyond a limit, damaged, and in the audit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from connect.gateways.catalog.catalog import open_catalog
from connect.operations.audit.announced_ranges import Announcement
from connect.operations.audit.audit_report import AuditReport, TableSum
from connect.operations.audit.table_audit import TableAudit
from coordinator.commit import head_files, vector_rows
from coordinator.commit.vector_rows import VectorWriter
from coordinator.row_deletes import limits, round_deletes
from tests.support.running_stack import duckdb_rows
from tests.support.tables import (
    QuickClock,
)
from tests.support.upserts import (
    Upserts,
    VectorUpserts,
    committed,
    metric,
    row,
    vector_files,
)

NOT_USED = "icefloe.deletion-vectors.not-used"


@pytest.fixture
def upserts(sql_catalog_properties: dict[str, str]) -> Iterable[VectorUpserts]:
    """An unpartitioned table in a local folder."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    yield VectorUpserts(gateway)
    gateway.close()


def head_of(t: Upserts) -> dict[str, str]:
    """The properties of the newest snapshot."""
    summary = t.reloaded().current_snapshot().summary
    return {"operation": summary.operation.value, **summary.additional_properties}


@pytest.mark.parametrize("damage", ["length", "magic", "checksum", "bitmap"])
def test_a_damaged_vector_is_not_merged(upserts: VectorUpserts, damage: str) -> None:
    """Rows never come back: the commit uses equality deletes."""
    t = upserts
    committed(t.committer().commit(t.round(([row(n, 10) for n in range(5)], []))))
    committed(t.committer().commit(t.round(([], [row(0, 0)]))))
    [file] = vector_files(t.reloaded()).values()
    at = file["content_offset"]
    end = at + file["content_size_in_bytes"]
    place = {"length": at + 3, "magic": at + 4, "checksum": end - 1, "bitmap": end - 5}[damage]
    path = Path(file["file_path"].removeprefix("file://"))
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    committed(t.committer().commit(t.round(([], [row(1, 0)]))))
    assert head_of(t)[NOT_USED] == "vector_form"


def audited(t: Upserts, rows: Sequence[int]) -> tuple[AuditReport, TableSum]:
    """The audit of the table, with all that was announced for it."""
    announcements = [
        Announcement(0, offset, UUID(int=1), None, count) for offset, count in enumerate(rows)
    ]
    audit = AuditReport("c")
    key = "kafka.connect.offsets.control-iceberg.connect-c"
    check = TableAudit(audit, key, "main", {}, {0: 1000}, {0: t.offset}, lambda _: [])
    return audit, check.check(".".join(t.name), t.reloaded(), announcements)


def test_the_audit_reads_vectors(upserts: VectorUpserts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Superseded rows are no mismatch; two vectors of one file are."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(n, 10) for n in range(5)], []))))
    committed(committer.commit(t.round(([row(1, 11)], []), ([row(1, 12), row(2, 22)], []))))
    audit, report = audited(t, [5, 1, 2])
    assert audit.is_sound, audit.mismatches
    assert (report.announced, report.committed, report.now) == (8, 8, 7)
    assert not audit.changed_by_others
    before = VectorWriter._before
    monkeypatch.setattr(VectorWriter, "_before", lambda *args: (before(*args)[0], []))
    committed(committer.commit(t.round(([], [row(0, 0)]))))
    audit, _ = audited(t, [5, 1, 2, 0])
    assert [mismatch.code for mismatch in audit.mismatches] == ["vector_twice"]


@pytest.mark.parametrize("reason", ["time", "keys", "files", "vectors"])
def test_beyond_a_limit_equality_deletes_are_used(
    upserts: VectorUpserts, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is not held up."""
    t = upserts
    committed(t.committer().commit(t.round(([row(n, 10) for n in range(5)], []))))
    before = t.stored_files("puffin")
    if reason == "time":
        t.clock = SlowClock()
    monkeypatch.setattr(round_deletes, "KEYS_MAX", 0 if reason == "keys" else 100)
    monkeypatch.setattr(head_files, "FILES_MAX", 0 if reason == "files" else 100)
    monkeypatch.setattr(vector_rows, "VECTOR_BYTES_MAX", 10 if reason == "vectors" else 10**6)
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    assert head_of(t)[NOT_USED] == reason
    assert t.stored_files("puffin") == before
    table = t.reloaded()
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)


def test_after_a_slow_commit_the_next_ones_are_not_tried(
    upserts: VectorUpserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each commit would take as long; after a pause they are."""
    t = upserts
    committer = t.committer()
    committed(committer.commit(t.round(([row(n, 10) for n in range(5)], []))))
    with monkeypatch.context() as patch:
        patch.setattr(limits, "DURATION_MS_MAX", -1)
        committed(committer.commit(t.round(([row(1, 11)], []))))
    read = metric("deletion_vector_read_bytes", ("c", ".".join(t.name)))
    for n in range(3):
        committed(committer.commit(t.round(([row(1, 12 + n)], []))))
        assert head_of(t)[NOT_USED] == "time"
    assert metric("deletion_vector_read_bytes", ("c", ".".join(t.name))) == read
    t.clock.slept_ms.append(limits.PAUSE_MS)
    committed(committer.commit(t.round(([row(1, 20)], []))))
    assert NOT_USED not in head_of(t)
    table = t.reloaded()
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)


class SlowClock(QuickClock):
    """A clock on which everything takes a minute."""

    def monotonic_ms(self) -> int:
        """Milliseconds, a minute later each time."""
        self.slept_ms.append(limits.DURATION_MS_MAX)
        return super().monotonic_ms()
