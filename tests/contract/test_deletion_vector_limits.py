"""Deletion vectors beyond a limit, damaged, and in the audit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from connect.config.connector import ConnectorConfig
from connect.operations.audit.announced_ranges import Announcement
from connect.operations.audit.audit_report import AuditReport, TableSum
from connect.operations.audit.table_audit import TableAudit
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.row_changes.row_removal import RowRemoval
from coordinator.commit.row_changes.vector_rows import VectorWriter
from coordinator.kernel.effects import TableFailed
from coordinator.row_deletes.limits import DEFAULT_LIMITS, RowLimits
from tests.support.running_stack import duckdb_rows
from tests.support.tables import announced, reference, table_commit
from tests.support.upserts import (
    VECTORS_NOT_USED,
    SlowClock,
    Upserts,
    VectorUpserts,
    committed,
    head_of,
    metric,
    row,
    vector_files,
)


@pytest.mark.parametrize("damage", ["length", "magic", "checksum", "bitmap"])
def test_a_damaged_vector_is_not_merged(vectors: VectorUpserts, damage: str) -> None:
    """Rows never come back: the commit uses equality deletes."""
    t = vectors
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
    assert head_of(t)[VECTORS_NOT_USED] == "vector_form"


def audited(t: Upserts, rows: Sequence[int]) -> tuple[AuditReport, TableSum]:
    """The audit of the table, with all that was announced for it."""
    announcements = [
        Announcement(0, offset, UUID(int=1), None, count) for offset, count in enumerate(rows)
    ]
    audit = AuditReport("c")
    key = "kafka.connect.offsets.control-iceberg.connect-c"
    check = TableAudit(audit, key, "main", {}, {0: 1000}, {0: t.offset}, lambda _: [])
    return audit, check.check(".".join(t.name), t.reloaded(), announcements)


class Adding(Committer):
    """A committer with a bug: it keeps the former vector of a file."""

    def __init__(self, catalog: Any, config: ConnectorConfig, clock: Any, **more: Any) -> None:
        super().__init__(catalog, config, clock, **more)
        self._new_removal = partial(AddingRemoval.of, config, clock, limits=DEFAULT_LIMITS)


class AddingRemoval(RowRemoval):
    """A removal with vectors that replace no others."""

    def _work(self, *table: Any) -> Any:
        work = super()._work(*table)
        writer = work.writer
        former = writer.vectors, writer.former
        work.writer = AddingWriter(writer.positions, *former, writer.created)
        return work


class AddingWriter(VectorWriter):
    """Vectors that replace no others."""

    def _before(self, *deletes: Any) -> Any:
        return super()._before(*deletes)[0], []


def test_the_audit_reads_vectors(vectors: VectorUpserts) -> None:
    """Superseded rows are no mismatch; two vectors of one file are."""
    t, committer = vectors, vectors.committer()
    committed(committer.commit(t.round(([row(n, 10) for n in range(5)], []))))
    committed(committer.commit(t.round(([row(1, 11)], []), ([row(1, 12), row(2, 22)], []))))
    audit, report = audited(t, [5, 1, 2])
    assert audit.is_sound, audit.mismatches
    assert (report.announced, report.committed, report.now) == (8, 8, 7)
    assert not audit.changed_by_others
    committed(t.committer(made=Adding).commit(t.round(([], [row(0, 0)]))))
    audit, _ = audited(t, [5, 1, 2, 0])
    assert [mismatch.code for mismatch in audit.mismatches] == ["vector_twice"]


LIMITS = {
    "time": RowLimits(),
    "keys": RowLimits(keys_max=0),
    "files": RowLimits(files_max=0),
    "vectors": RowLimits(vector_bytes_max=10),
}


@pytest.mark.parametrize("reason", LIMITS)
def test_beyond_a_limit_equality_deletes_are_used(vectors: VectorUpserts, reason: str) -> None:
    """The commit is not held up."""
    t = vectors
    committed(t.committer().commit(t.round(([row(n, 10) for n in range(5)], []))))
    before = t.stored_files("puffin")
    if reason == "time":
        t.clock = SlowClock()
    committed(t.committer(limits=LIMITS[reason]).commit(t.round(([row(1, 11)], []))))
    assert head_of(t)[VECTORS_NOT_USED] == reason
    assert t.stored_files("puffin") == before
    table = t.reloaded()
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)


def test_after_a_slow_commit_the_next_ones_are_not_tried(vectors: VectorUpserts) -> None:
    """Else each commit would take as long; after a pause they are."""
    t = vectors
    t.clock = clock = SlowClock()
    clock.is_slow = False
    committer = t.committer()
    committed(committer.commit(t.round(([row(n, 10) for n in range(5)], []))))
    clock.is_slow = True
    committed(committer.commit(t.round(([row(1, 11)], []))))
    clock.is_slow = False
    read = metric("deletion_vector_read_bytes", ("c", ".".join(t.name)))
    for n in range(3):
        committed(committer.commit(t.round(([row(1, 12 + n)], []))))
        assert head_of(t)[VECTORS_NOT_USED] == "time"
    assert metric("deletion_vector_read_bytes", ("c", ".".join(t.name))) == read
    clock.slept_ms.append(DEFAULT_LIMITS.pause_ms)
    committed(committer.commit(t.round(([row(1, 20)], []))))
    assert VECTORS_NOT_USED not in head_of(t)
    table = t.reloaded()
    assert duckdb_rows(table, "id", "value") == sorted((r["id"], r["value"]) for r in t.rows)


NO_EQUALITY_DELETES = {"iceberg__tables__equality_deletes_enabled": "false"}


@pytest.mark.parametrize("reason", LIMITS)
def test_a_table_without_equality_deletes_waits_or_fails(changes: Upserts, reason: str) -> None:
    """Its readers cannot read equality deletes; with a higher limit the same commit is made."""
    t = changes
    if reason == "vectors" and not isinstance(t, VectorUpserts):
        pytest.skip("copies have no vectors")
    committed(t.committer(**NO_EQUALITY_DELETES).commit(t.round(([row(1, 10), row(2, 20)], []))))
    head, files, puffins = head_of(t), t.stored_files(), t.stored_files("puffin")
    commit = t.round(([row(1, 11)], []))
    files |= {f.file_path for e in commit.announcements for f in e.event.payload.data_files}
    files |= {f.file_path for e in commit.announcements for f in e.event.payload.delete_files}
    is_retriable = reason == "time"
    if is_retriable:
        t.clock = clock = SlowClock()
    committer = t.committer(limits=LIMITS[reason], **NO_EQUALITY_DELETES)
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    code = "copy_on_write_time" if is_retriable else "equality_deletes_disabled"
    assert (outcome.code, outcome.is_retriable) == (code, is_retriable)
    assert (head_of(t), t.stored_files(), t.stored_files("puffin")) == (head, files, puffins)
    if is_retriable:
        clock.is_slow = False  # there is no pause, because no other way is left
    else:
        committer = t.committer(**NO_EQUALITY_DELETES)
    committed(committer.commit(commit))
    t.check()


def test_deletes_that_wait_while_row_changes_are_switched_off(changes: Upserts) -> None:
    """The key still holds for deletes that were announced before, and appends need nothing."""
    t = changes
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    off = {**NO_EQUALITY_DELETES, "iceberg__tables__upsert_mode_enabled": "false"}
    committed(t.committer(**off).commit(t.round(([row(1, 11)], []))))
    t.check()
    appended = announced(reference(t.table), t.data_files([row(9, 1)]), offset=t.offset)
    committed(t.committer(**off).commit(table_commit([appended])))
    assert head_of(t)["operation"] == "append"


def test_a_table_of_format_version_2_needs_copies(copies: Upserts) -> None:
    """Without them and without equality deletes no row can be removed; appends are committed."""
    settings = {**NO_EQUALITY_DELETES, "iceberg__tables__write_mode": "merge-on-read"}
    appended = table_commit(
        [announced(reference(copies.table), copies.data_files([row(9, 1)]), offset=1)]
    )
    committed(copies.committer(**settings).commit(appended))
    copies.offset = 2
    outcome = copies.committer(**settings).commit(copies.round(([row(1, 10)], [])))
    assert isinstance(outcome, TableFailed)
    assert outcome.code == "equality_deletes_disabled"
    assert "format version 2" in outcome.message
    assert "set iceberg.tables.write-mode=copy-on-write" in outcome.message
