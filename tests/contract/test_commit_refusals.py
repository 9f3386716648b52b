"""Tables that cannot be committed to, and stores that fail, on one backend."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.storage.object_store import delete_files, open_storage
from control_schemas.events import PartitionField
from coordinator.commit.iceberg.committer import Committer
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableCommitted, TableFailed
from tests.support.table_harness import MIRROR, SCHEMA, TableHarness, paths_of
from tests.support.tables import announced, made_up_file, metadata_files, reference, table_commit


class BreakingCatalog(CatalogGateway):
    """After the next load the table's metadata folder cannot be written to."""

    broken: Path | None = None
    is_breaking = False

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """Load, then break."""
        table = super().load(identifier, with_history=with_history)
        if self.is_breaking:
            self.is_breaking = False
            self.broken = Path(table.location().removeprefix("file://")) / "metadata"
            self.broken.rename(self.broken.with_suffix(".away"))
            self.broken.write_text("in the way")
        return table

    def restore(self) -> None:
        """Put the folder back."""
        assert self.broken is not None
        self.broken.unlink()
        self.broken.with_suffix(".away").rename(self.broken)


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[BreakingCatalog]:
    """SQLite and a local folder."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    gateway = BreakingCatalog("iceberg", opened.config)
    yield gateway
    gateway.close()
    opened.close()


@pytest.fixture
def harness(catalog: BreakingCatalog) -> TableHarness:
    """A fresh table."""
    return TableHarness(catalog, catalog.create(("db", "t"), SCHEMA))


def _failed(committer: Committer, commit: TableCommit) -> str:
    outcome = committer.commit(commit)
    assert isinstance(outcome, TableFailed)
    return f"{outcome.code} {'again' if outcome.is_retriable else 'final'}"


def test_a_commit_is_retried_while_the_store_cannot_be_written(
    harness: TableHarness, catalog: BreakingCatalog
) -> None:
    """The table waits a round; no file is lost and none is left."""
    committer = harness.committer()
    assert isinstance(committer.commit(harness.round(0)), TableCommitted)
    before = metadata_files(harness.table)
    commit = harness.round(1)
    catalog.is_breaking = True
    assert _failed(committer, commit) == "storage_unavailable again"
    catalog.restore()
    assert metadata_files(harness.table) == before
    assert isinstance(committer.commit(commit), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 2


def test_missing_metadata_is_reported(harness: TableHarness) -> None:
    """A table whose metadata file was deleted needs an operator."""
    Path(harness.table.metadata_location.removeprefix("file://")).unlink()
    assert _failed(harness.committer(), harness.round(0)) == "metadata_missing final"


@pytest.mark.parametrize(("name", "in_list"), [("vector", False), ("variant", True)])
def test_a_column_of_an_unknown_type_is_reported(
    harness: TableHarness, name: str, *, in_list: bool
) -> None:
    """Also in a list: a table with such a column cannot be loaded, and there is no retry."""
    path = Path(harness.table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    kind: object = name
    if in_list:
        kind = {"type": "list", "element-id": 98, "element": name, "element-required": False}
    field = {"id": 99, "name": "v", "required": False, "type": kind}
    metadata["schemas"][0]["fields"].append(field)
    path.write_text(json.dumps(metadata))
    assert _failed(harness.committer(), harness.round(0)) == "unsupported_type final"


def test_a_tag_with_the_name_of_the_branch_is_refused(harness: TableHarness) -> None:
    """Nothing can be committed to a tag."""
    assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
    settings = {"iceberg__tables__default_commit_branch": "icefloe-c"}
    assert _failed(harness.committer(settings=settings), harness.round(1)) == "branch_is_tag final"


def test_a_branch_with_the_name_of_the_tag_is_not_moved(harness: TableHarness) -> None:
    """The floor is then in summary and mirror."""
    other = TableHarness(harness.catalog, harness.table, "d").committer()
    assert isinstance(other.commit(harness.round(0)), TableCommitted)
    head = harness.reloaded().current_snapshot()
    assert head is not None
    given = {"ref-name": "icefloe-c", "type": SnapshotRefType.BRANCH}
    harness.change(SetSnapshotRefUpdate.model_validate({**given, "snapshot-id": head.snapshot_id}))
    assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
    assert harness.reloaded().metadata.refs["icefloe-c"].snapshot_id == head.snapshot_id


def test_tables_of_format_version_1_are_refused(catalog: BreakingCatalog) -> None:
    """Version 1 tables are refused rather than written wrongly."""
    table = catalog.create(("db", "old"), SCHEMA, properties={"format-version": "1"})
    harness = TableHarness(catalog, table)
    assert _failed(harness.committer(), harness.round(0)) == "format_version_unsupported final"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"spec_id": 9}, "spec_missing"),
        ({"file_format": "CSV"}, "file_format_unknown"),
    ],
)
def test_files_that_do_not_fit_the_table_are_refused(
    harness: TableHarness, change: dict[str, Any], code: str
) -> None:
    """A file with an unknown spec or format fails the commit with a code."""
    file = replace(made_up_file(harness.table), **change)
    commit = table_commit([announced(reference(harness.table), [file], offset=0)])
    assert _failed(harness.committer(), commit) == f"{code} final"


def test_files_of_older_sinks_are_committed(harness: TableHarness) -> None:
    """Events without table id, and files without spec id."""
    file = replace(made_up_file(harness.table), spec_id=None, column_sizes=None, split_offsets=None)
    other = PartitionField(1000, "gone", "int", 1)
    files = [file, replace(made_up_file(harness.table), partition=(other,))]
    event = announced(reference(harness.table, with_uuid=False), files, offset=0)
    assert isinstance(harness.committer().commit(table_commit([event])), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 2


def test_one_event_for_a_replaced_table_fails_the_commit(harness: TableHarness) -> None:
    """One event for another table is enough to stop."""
    other_table = replace(reference(harness.table), table_uuid=UUID(int=5))
    events = [
        announced(reference(harness.table), harness.files(), offset=0),
        announced(other_table, harness.files(), offset=1),
    ]
    assert _failed(harness.committer(), table_commit(events)) == "table_replaced final"


def test_a_zombie_is_fenced_without_a_conflict(harness: TableHarness) -> None:
    """The committer detects it by the floor, before it writes any metadata."""
    zombie = harness.committer()
    assert isinstance(zombie.commit(harness.round(0)), TableCommitted)
    assert isinstance(harness.committer().commit(harness.round(1)), TableCommitted)
    before = metadata_files(harness.table)
    assert isinstance(zombie.commit(harness.round(2)), CoordinatorFenced)
    assert metadata_files(harness.table) == before


def test_the_mirror_alone_does_not_lower_the_floor(harness: TableHarness) -> None:
    """A mirror that an operator lowers does not lower the floor of the ancestry."""
    committer = harness.committer()
    commit = harness.round(7)
    assert isinstance(committer.commit(commit), TableCommitted)
    harness.change(SetPropertiesUpdate(updates={MIRROR: '{"0":1}'}))
    again = harness.committer().commit(commit)
    assert again == TableCommitted(again.table, again.commit_id, None)
    harness.change(SetPropertiesUpdate(updates={MIRROR: "{'0':1}"}))
    assert _failed(harness.committer(), commit) == "floor_unreadable final"


def test_manifests_are_not_merged_if_the_table_disables_it(catalog: BreakingCatalog) -> None:
    """``commit.manifest-merge.enabled`` false keeps every manifest."""
    wants = {
        "commit.manifest-merge.enabled": "false",
        "commit.manifest.min-count-to-merge": "2",
        "write.avro.compression-codec": "no-such-codec",
    }
    harness = TableHarness(catalog, catalog.create(("db", "m"), SCHEMA, properties=wants))
    committer = harness.committer()
    for n in range(4):
        assert isinstance(committer.commit(harness.round(n)), TableCommitted)
    assert len(harness.reloaded().current_snapshot().manifests(harness.table.io)) == 4


def test_a_merge_stops_at_the_target_size(catalog: BreakingCatalog) -> None:
    """Bins are filled up to the target size, not beyond."""
    wants = {
        "commit.manifest.min-count-to-merge": "2",
        "commit.manifest.target-size-bytes": "20000",
        "write.avro.compression-codec": "uncompressed",
    }
    harness = TableHarness(catalog, catalog.create(("db", "m"), SCHEMA, properties=wants))
    committer = harness.committer()
    for n in range(12):
        assert isinstance(committer.commit(harness.round(n, 10)), TableCommitted)
    manifests = harness.reloaded().current_snapshot().manifests(harness.table.io)
    assert 2 <= len(manifests) < 12
    assert len(set(paths_of(harness.reloaded()))) == 120


def test_manifests_of_a_dropped_source_column_are_not_merged(catalog: BreakingCatalog) -> None:
    """Manifests of that spec are kept unchanged."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "gone", LongType(), required=False),
    )
    spec = PartitionSpec(SpecField(2, 1000, IdentityTransform(), "gone"))
    wants = {"commit.manifest.min-count-to-merge": "2"}
    harness = TableHarness(catalog, catalog.create(("db", "d"), schema, spec, wants))
    committer = harness.committer()
    partition = (PartitionField(1000, "gone", "long", 5),)
    for n in range(3):
        commit = harness.round(n)
        file = replace(made_up_file(harness.table), partition=partition)
        event = announced(reference(harness.table), [file], offset=n)
        assert isinstance(committer.commit(replace(commit, announcements=(event,))), TableCommitted)
    with harness.reloaded().update_spec() as update:
        update.remove_field("gone")
    with harness.reloaded().update_schema() as change:
        change.delete_column("gone")
    harness.table = harness.reloaded()
    for n in range(3, 6):
        assert isinstance(committer.commit(harness.round(n)), TableCommitted)
    assert len(paths_of(harness.reloaded())) == 6


def test_a_failed_deletion_does_not_stop_the_committer(tmp_path: Path) -> None:
    """The file is already deleted, or stays as an orphan."""
    io = open_storage({}, f"file://{tmp_path}")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    paths = [f"file://{tmp_path}/{n}" for n in ("missing", "folder", "file")]
    assert delete_files(io, paths) == 1
    assert not (tmp_path / "file").exists()
