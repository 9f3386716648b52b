"""Manifests of waiting announcements are written once, for any outcome of the rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table

from connect.errors import CommitConflict, CommitRefused, CommitStateUnknown, IcefloeError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.storage.guarded_io import GuardedFileIO
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import Envelope, TableCommitted, TableFailed
from tests.support.table_harness import SCHEMA, TableHarness, paths_of, stale_numbers
from tests.support.tables import announced, equality_delete, metadata_files, reference, table_commit

ROUNDS = 12


class RecordingIO(GuardedFileIO):
    """Notes each file that is written."""

    written: list[str]

    def new_output(self, location: str) -> PyArrowFile:
        """Note, then open."""
        self.written.append(location.rpartition("/")[2])
        return super().new_output(location)


class FailingCatalog(CatalogGateway):
    """A catalog that can be loaded from and answers commits with an error while there is one."""

    answer: Callable[[], IcefloeError] | None = None
    before_answer: Callable[[], object] | None = None
    written: list[str]

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """The table, whose writes are noted."""
        table = super().load(identifier, with_history=with_history)
        table.io = RecordingIO(table.io.properties)
        table.io.written = self.written
        return table

    def commit(self, *change: object, **options: bool) -> Table:
        """Fail as asked, or commit."""
        if self.answer is not None:
            if self.before_answer is not None:
                self.before_answer()
            raise self.answer()
        return super().commit(*change, **options)

    def taken(self) -> list[str]:
        """Names of the Avro files written since the last call."""
        out = [name for name in self.written if name.endswith(".avro")]
        self.written.clear()
        return out


def forbidden() -> IcefloeError:
    """A refusal: certainly not applied."""
    return CommitRefused("not for you", code="forbidden")


def unknown() -> IcefloeError:
    """No answer: it may still be applied."""
    return CommitStateUnknown("no answer")


def conflict() -> IcefloeError:
    """Another client was faster."""
    return CommitConflict("another client was faster")


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[FailingCatalog]:
    """SQLite and a local folder."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    gateway = FailingCatalog("iceberg", opened.config)
    gateway.written = []
    yield gateway
    gateway.close()
    opened.close()


@pytest.fixture
def harness(catalog: FailingCatalog) -> TableHarness:
    """A fresh table."""
    return TableHarness(catalog, catalog.create(("db", "t"), SCHEMA))


def _announcement(harness: TableHarness, offset: int, *, deletes: bool = False) -> Envelope:
    deletes_of_rows = [equality_delete(harness.table, offset)] if deletes else []
    return announced(
        reference(harness.table), harness.files(), deletes_of_rows, offset=offset, batch=offset
    )


def _fails(committer: Committer, announcements: list[Envelope]) -> None:
    assert isinstance(committer.commit(table_commit(announcements)), TableFailed)


def _lists(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("snap-")]


@pytest.mark.parametrize("answer", [forbidden, unknown, conflict])
@pytest.mark.parametrize("deletes", [False, True])
def test_rounds_that_fail_write_manifests_once(
    harness: TableHarness,
    catalog: FailingCatalog,
    answer: Callable[[], IcefloeError],
    *,
    deletes: bool,
) -> None:
    """Later rounds write only a manifest list each.

    A row-level commit has one manifest of data and one of deletes.
    """
    committer = harness.committer()
    announcements = [_announcement(harness, n, deletes=deletes) for n in range(3)]
    catalog.answer = answer
    _fails(committer, announcements)
    first = catalog.taken()
    assert len(first) - len(_lists(first)) == 1 + deletes
    for _ in range(ROUNDS - 1):
        _fails(committer, announcements)
    later = catalog.taken()
    assert later == _lists(later)
    assert len(later) == ROUNDS - 1
    catalog.answer = None
    assert isinstance(committer.commit(table_commit(announcements)), TableCommitted)
    assert len(catalog.taken()) == 1
    assert set(paths_of(harness.reloaded())) == {
        f.file_path
        for e in announcements
        for f in (*e.event.payload.data_files, *e.event.payload.delete_files)
    }
    assert not stale_numbers(harness.reloaded())


@pytest.mark.parametrize("deletes", [False, True])
def test_a_new_announcement_adds_its_manifest_to_those_kept(
    harness: TableHarness, catalog: FailingCatalog, *, deletes: bool
) -> None:
    """Each round writes a manifest for new files; sixteen manifests become one."""
    committer = harness.committer()
    catalog.answer = forbidden
    announcements: list[Envelope] = []
    for n in range(40):
        announcements.append(_announcement(harness, n, deletes=deletes))
        _fails(committer, announcements)
    written = catalog.taken()
    assert len(written) - len(_lists(written)) == 40 * (1 + deletes)
    assert len(metadata_files(harness.table)) <= 16 * (1 + deletes)
    catalog.answer = None
    assert isinstance(committer.commit(table_commit(announcements)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 40 * (1 + deletes)
    assert not stale_numbers(harness.reloaded())
    head = harness.reloaded().current_snapshot()
    assert head is not None
    listed = {m.manifest_path.rpartition("/")[2] for m in head.manifests(harness.table.io)}
    assert metadata_files(harness.table) == {*listed, head.manifest_list.rpartition("/")[2]}
    assert head.summary is not None
    assert head.summary["added-data-files"] == "40"


@pytest.mark.parametrize("deletes", [False, True])
def test_a_foreign_commit_between_rounds_gives_new_numbers(
    harness: TableHarness, catalog: FailingCatalog, *, deletes: bool
) -> None:
    """Manifests of appends inherit the new number; those of row-level steps are written again."""
    committer = harness.committer()
    announcements = [_announcement(harness, n, deletes=deletes) for n in range(2)]
    catalog.answer = forbidden
    _fails(committer, announcements)
    catalog.answer = None
    other = TableHarness(catalog, harness.table, "d")
    assert isinstance(other.committer().commit(other.round(0)), TableCommitted)
    catalog.taken()
    assert isinstance(committer.commit(table_commit(announcements)), TableCommitted)
    written = catalog.taken()
    assert len(written) - len(_lists(written)) == (2 if deletes else 0)
    assert not stale_numbers(harness.reloaded())
    assert len(paths_of(harness.reloaded())) == 1 + 2 * (1 + deletes)
    assert len(metadata_files(harness.table)) == 4 + deletes  # two lists and what they list


def test_an_attempt_that_is_applied_late_keeps_its_manifests(
    harness: TableHarness, catalog: FailingCatalog
) -> None:
    """The next round adds only missing files and deletes no manifest of the late snapshot."""
    committer = harness.committer()
    announcements = [_announcement(harness, 0)]
    late: list[tuple[object, ...]] = []

    def sent(*change: object, **_: bool) -> Table:
        late.append(change)
        raise CommitStateUnknown("no answer")

    commit, catalog.commit = catalog.commit, sent  # type: ignore[method-assign]
    _fails(committer, announcements)
    catalog.commit = commit  # type: ignore[method-assign]
    catalog.commit(*late[0])
    announcements.append(_announcement(harness, 1))
    assert isinstance(committer.commit(table_commit(announcements)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 2
    committer.close()
    for snapshot in harness.reloaded().metadata.snapshots:
        for manifest in snapshot.manifests(harness.table.io):
            assert manifest.fetch_manifest_entry(harness.table.io)


def test_a_kept_manifest_that_was_deleted_is_written_again(
    harness: TableHarness, catalog: FailingCatalog
) -> None:
    """A snapshot never lists a manifest that a clean-up of the store removed."""
    committer = harness.committer()
    announcements = [_announcement(harness, 0)]
    catalog.answer = forbidden
    _fails(committer, announcements)
    (name,) = metadata_files(harness.table)
    (Path(harness.table.location().removeprefix("file://")) / "metadata" / name).unlink()
    catalog.answer = None
    assert isinstance(committer.commit(table_commit(announcements)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 1


def test_a_changed_schema_needs_new_manifests(
    harness: TableHarness, catalog: FailingCatalog
) -> None:
    """A manifest contains the schema; the old one is deleted."""
    committer = harness.committer()
    announcements = [_announcement(harness, 0)]
    catalog.answer = forbidden
    _fails(committer, announcements)
    before = metadata_files(harness.table)
    catalog.answer = None
    with harness.reloaded().update_schema() as update:
        update.add_column("more", SCHEMA.fields[1].field_type)
    assert isinstance(committer.commit(table_commit(announcements)), TableCommitted)
    assert not before & metadata_files(harness.table)


def test_unused_manifests_are_deleted(harness: TableHarness, catalog: FailingCatalog) -> None:
    """After a skip, and at the end of the session."""
    committer = harness.committer()
    announcements = [_announcement(harness, n) for n in range(2)]
    catalog.answer = forbidden
    _fails(committer, announcements[:1])
    _fails(committer, announcements)
    assert len(metadata_files(harness.table)) == 2
    _fails(committer, announcements[1:])
    assert len(metadata_files(harness.table)) == 1
    committer.close()
    assert not metadata_files(harness.table)
