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
from coordinator.commit.committer import Committer
from coordinator.kernel.effects import Envelope, TableCommitted, TableFailed
from tests.support.places import SCHEMA, Place, paths_of, stale_numbers
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

    def load(self, identifier: Sequence[str]) -> Table:
        """The table, whose writes are noted."""
        table = super().load(identifier)
        table.io = RecordingIO(table.io.properties)
        table.io.written = self.written
        return table

    def commit(self, *change: object) -> Table:
        """Fail as asked, or commit."""
        if self.answer is not None:
            if self.before_answer is not None:
                self.before_answer()
            raise self.answer()
        return super().commit(*change)

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
def place(catalog: FailingCatalog) -> Place:
    """A fresh table."""
    return Place(catalog, catalog.create(("db", "t"), SCHEMA))


def _announcement(place: Place, offset: int, *, deletes: bool = False) -> Envelope:
    gone = [equality_delete(place.table, offset)] if deletes else []
    return announced(reference(place.table), place.files(), gone, offset=offset, batch=offset)


def _fails(committer: Committer, kept: list[Envelope]) -> None:
    assert isinstance(committer.commit(table_commit(kept)), TableFailed)


def _lists(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("snap-")]


@pytest.mark.parametrize("answer", [forbidden, unknown, conflict])
@pytest.mark.parametrize("deletes", [False, True])
def test_rounds_that_fail_write_manifests_once(
    place: Place, catalog: FailingCatalog, answer: Callable[[], IcefloeError], *, deletes: bool
) -> None:
    """Later rounds write only a manifest list each.

    A row-level commit has one manifest of data and one of deletes.
    """
    committer = place.committer()
    kept = [_announcement(place, n, deletes=deletes) for n in range(3)]
    catalog.answer = answer
    _fails(committer, kept)
    first = catalog.taken()
    assert len(first) - len(_lists(first)) == 1 + deletes
    for _ in range(ROUNDS - 1):
        _fails(committer, kept)
    later = catalog.taken()
    assert later == _lists(later)
    assert len(later) == ROUNDS - 1
    catalog.answer = None
    assert isinstance(committer.commit(table_commit(kept)), TableCommitted)
    assert len(catalog.taken()) == 1
    assert set(paths_of(place.now())) == {
        f.file_path
        for e in kept
        for f in (*e.event.payload.data_files, *e.event.payload.delete_files)
    }
    assert not stale_numbers(place.now())


@pytest.mark.parametrize("deletes", [False, True])
def test_a_new_announcement_adds_its_manifest_to_those_kept(
    place: Place, catalog: FailingCatalog, *, deletes: bool
) -> None:
    """Each round writes a manifest for new files; sixteen manifests become one."""
    committer = place.committer()
    catalog.answer = forbidden
    kept: list[Envelope] = []
    for n in range(40):
        kept.append(_announcement(place, n, deletes=deletes))
        _fails(committer, kept)
    written = catalog.taken()
    assert len(written) - len(_lists(written)) == 40 * (1 + deletes)
    assert len(metadata_files(place.table)) <= 16 * (1 + deletes)
    catalog.answer = None
    assert isinstance(committer.commit(table_commit(kept)), TableCommitted)
    assert len(paths_of(place.now())) == 40 * (1 + deletes)
    assert not stale_numbers(place.now())
    head = place.now().current_snapshot()
    assert head is not None
    listed = {m.manifest_path.rpartition("/")[2] for m in head.manifests(place.table.io)}
    assert metadata_files(place.table) == {*listed, head.manifest_list.rpartition("/")[2]}
    assert head.summary is not None
    assert head.summary["added-data-files"] == "40"


@pytest.mark.parametrize("deletes", [False, True])
def test_a_foreign_commit_between_rounds_gives_new_numbers(
    place: Place, catalog: FailingCatalog, *, deletes: bool
) -> None:
    """Manifests of appends inherit the new number; those of row-level steps are written again."""
    committer = place.committer()
    kept = [_announcement(place, n, deletes=deletes) for n in range(2)]
    catalog.answer = forbidden
    _fails(committer, kept)
    catalog.answer = None
    other = Place(catalog, place.table, "d")
    assert isinstance(other.committer().commit(other.round(0)), TableCommitted)
    catalog.taken()
    assert isinstance(committer.commit(table_commit(kept)), TableCommitted)
    written = catalog.taken()
    assert len(written) - len(_lists(written)) == (2 if deletes else 0)
    assert not stale_numbers(place.now())
    assert len(paths_of(place.now())) == 1 + 2 * (1 + deletes)
    assert len(metadata_files(place.table)) == 4 + deletes  # two lists and what they list


def test_an_attempt_that_is_applied_late_keeps_its_manifests(
    place: Place, catalog: FailingCatalog
) -> None:
    """The next round adds only missing files and deletes no manifest of the late snapshot."""
    committer = place.committer()
    kept = [_announcement(place, 0)]
    late: list[tuple[object, ...]] = []

    def sent(*change: object) -> Table:
        late.append(change)
        raise CommitStateUnknown("no answer")

    commit, catalog.commit = catalog.commit, sent  # type: ignore[method-assign]
    _fails(committer, kept)
    catalog.commit = commit  # type: ignore[method-assign]
    catalog.commit(*late[0])
    kept.append(_announcement(place, 1))
    assert isinstance(committer.commit(table_commit(kept)), TableCommitted)
    assert len(paths_of(place.now())) == 2
    committer.close()
    for snapshot in place.now().metadata.snapshots:
        for manifest in snapshot.manifests(place.table.io):
            assert manifest.fetch_manifest_entry(place.table.io)


def test_a_kept_manifest_that_was_deleted_is_written_again(
    place: Place, catalog: FailingCatalog
) -> None:
    """A snapshot never lists a manifest that a clean-up of the store removed."""
    committer = place.committer()
    kept = [_announcement(place, 0)]
    catalog.answer = forbidden
    _fails(committer, kept)
    (name,) = metadata_files(place.table)
    (Path(place.table.location().removeprefix("file://")) / "metadata" / name).unlink()
    catalog.answer = None
    assert isinstance(committer.commit(table_commit(kept)), TableCommitted)
    assert len(paths_of(place.now())) == 1


def test_a_changed_schema_needs_new_manifests(place: Place, catalog: FailingCatalog) -> None:
    """A manifest contains the schema; the old one is deleted."""
    committer = place.committer()
    kept = [_announcement(place, 0)]
    catalog.answer = forbidden
    _fails(committer, kept)
    before = metadata_files(place.table)
    catalog.answer = None
    with place.now().update_schema() as update:
        update.add_column("more", SCHEMA.fields[1].field_type)
    assert isinstance(committer.commit(table_commit(kept)), TableCommitted)
    assert not before & metadata_files(place.table)


def test_unused_manifests_are_deleted(place: Place, catalog: FailingCatalog) -> None:
    """After a skip, and at the end of the session."""
    committer = place.committer()
    kept = [_announcement(place, n) for n in range(2)]
    catalog.answer = forbidden
    _fails(committer, kept[:1])
    _fails(committer, kept)
    assert len(metadata_files(place.table)) == 2
    _fails(committer, kept[1:])
    assert len(metadata_files(place.table)) == 1
    committer.close()
    assert not metadata_files(place.table)
