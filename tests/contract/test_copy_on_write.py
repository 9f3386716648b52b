"""Copy-on-write commits to Iceberg tables: rows, files, conflicts, unknown outcomes, bounds."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType

from connect.errors import CommitConflict, CommitStateUnknown
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from control_schemas.events import FileContent
from coordinator.kernel.effects import CoordinatorFenced, TableCommit, TableFailed
from coordinator.maintenance.snapshot_expiry import BATCH
from coordinator.row_deletes import limits
from tests.support.simulated_kill import killed_at
from tests.support.table_harness import EXPIRING, Racing
from tests.support.tables import (
    QuickClock,
    announced,
    partition_of,
    reference,
    table_commit,
)
from tests.support.upserts import (
    Upserts,
    committed,
    counted,
    delete_file,
    live_paths,
    metric,
    row,
)


@pytest.fixture
def upserts(sql_catalog_properties: dict[str, str]) -> Iterable[Upserts]:
    """An unpartitioned table in a local folder."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    yield Upserts(gateway)
    gateway.close()


def test_a_round_replaces_rows_in_one_snapshot_without_delete_files(
    catalog: CatalogGateway,
) -> None:
    """On every backend: only files with superseded rows are written again."""
    t = Upserts(catalog)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(7, 70)], []))))
    before = live_paths(t.reloaded())
    outcome = committed(committer.commit(t.round(([row(1, 11)], [row(7, 0)]))))
    t.check()
    table = t.reloaded()
    assert len(table.metadata.snapshots) == 3
    head = table.current_snapshot()
    assert outcome.snapshot_id == head.snapshot_id
    assert head.summary.operation.value == "overwrite"
    summary = head.summary.additional_properties
    assert summary["deleted-data-files"] == "2"
    assert summary["deleted-records"] == "3"
    assert summary["added-records"] == "2"
    assert summary["icefloe.write-mode"] == "copy-on-write"
    assert summary["kafka.connect.offsets.control-iceberg.connect-c"] == '{"0":3}'
    assert not before & live_paths(table)


def test_untouched_files_stay(upserts: Upserts) -> None:
    """A round of new keys is an append; deletes of unknown keys change no file."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(1, 10)], []))))
    first = live_paths(t.reloaded())
    committed(committer.commit(t.round(([row(5, 50)], []))))
    committed(committer.commit(t.round(([], [row(9, 0)]))))
    t.check()
    table = t.reloaded()
    assert first < live_paths(table)
    operations = [s.summary.operation.value for s in table.metadata.snapshots]
    assert operations == ["append"] * 3


def test_files_of_the_round_are_deleted_when_it_is_committed(upserts: Upserts) -> None:
    """Only what snapshots list stays in the store."""
    t, committer = upserts, upserts.committer()
    listed: set[str] = set()
    for n in range(3):
        steps = [([row(1, n), row(2, n)], []), ([row(1, n + 10)], []), ([row(1, n + 20)], [])]
        committed(committer.commit(t.round(*steps)))
        listed |= live_paths(t.reloaded())
    t.check()
    assert t.stored_files() == listed


def test_steps_apply_in_their_order(upserts: Upserts) -> None:
    """A delete reaches rows of earlier steps of the round, and none of its own or later ones."""
    t, committer = upserts, upserts.committer()
    steps = [([row(1, 1), row(2, 2)], []), ([row(1, 3)], [row(2, 0)]), ([row(2, 4)], [])]
    committed(committer.commit(t.round(*steps)))
    t.check()
    assert sorted(r["value"] for r in t.rows) == [3, 4]


def test_null_keys_are_equal(sql_catalog_properties: dict[str, str]) -> None:
    """In one and in several key columns."""
    for keys in (("id",), ("id", "region")):
        t = Upserts(open_catalog("iceberg", sql_catalog_properties), keys=keys)
        committer = t.committer()
        rows = [row(None, 1), row(1, 2, None), row(None, 3, None), row(1, 4)]
        committed(committer.commit(t.round((rows if len(keys) == 2 else rows[:2], []))))
        committed(committer.commit(t.round(([row(None, 5), row(1, 6, None)], []))))
        t.check()
        t.catalog.close()


def test_a_key_moves_to_another_partition(sql_catalog_properties: dict[str, str]) -> None:
    """Deletes under a spec without partitions reach all partitions."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = Upserts(open_catalog("iceberg", sql_catalog_properties), spec)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 1, "eu"), row(2, 2, "us"), row(3, 3, None)], []))))
    committed(committer.commit(t.round(([row(1, 4, "us"), row(3, 5, "eu")], []))))
    t.check()
    folders = {path.split("/data/")[1].split("/")[0] for path in live_paths(t.reloaded())}
    assert folders
    t.catalog.close()


def test_deletes_of_a_partition_reach_no_other(sql_catalog_properties: dict[str, str]) -> None:
    """As equality deletes do: the key column alone does not decide."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = Upserts(open_catalog("iceberg", sql_catalog_properties), spec)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 1, "eu")], []))))
    t.foreign([row(1, 2, "us")])
    t.rows.append(row(1, 2, "us"))
    table = t.reloaded()
    scoped = dataclasses.replace(
        delete_file(table, [row(1, 0)], ["id"]),
        spec_id=table.spec().spec_id,
        partition=partition_of(table, row(1, 0, "eu")),
    )
    commit = table_commit([announced(reference(table), [], [scoped], offset=t.offset, batch=9)])
    committed(committer.commit(commit))
    t.rows.remove(row(1, 1, "eu"))
    t.check()
    t.catalog.close()


def test_old_files_keep_their_schema(upserts: Upserts) -> None:
    """Keys are compared in the table's present types; new columns are null in old rows."""
    t, committer = upserts, upserts.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    table = t.catalog._client().load_table(t.name)
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.add_column("day", DateType())
        update.rename_column("region", "area")
    t.rows = [{"id": r["id"], "area": r["region"], "value": r["value"]} for r in t.rows]
    new = {"id": 2, "area": "us", "value": 21, "day": date(2026, 1, 2)}
    committed(committer.commit(t.round(([new], []))))
    t.check()
    big = {"id": 2**40, "area": "us", "value": 1, "day": None}
    committed(committer.commit(t.round(([big, {**new, "id": 1}], []))))
    t.check()


def test_rows_of_another_writer_are_replaced_too(upserts: Upserts) -> None:
    """Also rows that it adds between the attempts of a commit."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    racing = Racing(
        t.catalog, [lambda: t.foreign([row(1, 90), row(8, 80)]), lambda: t.foreign([row(1, 91)])]
    )
    outcome = committed(t.committer(racing).commit(t.round(([row(1, 11)], []))))
    t.rows.append(row(8, 80))
    t.check()
    assert outcome.snapshot_id == t.reloaded().current_snapshot().snapshot_id


def test_copies_are_made_once_over_all_attempts(upserts: Upserts) -> None:
    """A file that is still in the table is not copied again after a conflict."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    before = t.stored_files()
    racing = Racing(t.catalog, [lambda: t.foreign([row(8, 80)])] * 3)
    commit = t.round(([row(1, 11)], []))
    t.rows += [row(8, 80)] * 3
    committed(t.committer(racing).commit(commit))
    t.check()
    copies = t.stored_files() - before
    assert len(copies) == 1 + 1 + 3  # copy, new row, rows of the other writer


@pytest.mark.parametrize("is_applied", [True, False])
def test_an_unanswered_commit_is_searched_for(upserts: Upserts, *, is_applied: bool) -> None:
    """Whether it was applied or not, the rows are there once, and nothing listed is deleted."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))

    class Unanswered(Racing):
        left = 1

        def commit(self, *change: object, **options: object) -> Table:
            if not self.left:
                return super().commit(*change, **options)
            self.left -= 1
            if is_applied:
                super().commit(*change, **options)
            raise CommitStateUnknown("no answer")

    committed(t.committer(Unanswered(t.catalog, [])).commit(t.round(([row(1, 11)], []))))
    t.check()
    committed(t.committer().commit(t.round(([row(2, 21)], []))))
    t.check()


def test_a_commit_that_lands_late_is_not_made_again(upserts: Upserts) -> None:
    """The first attempt is applied after the committer gave up; the next round finds it."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    late: list[Callable[[], object]] = []

    class Late(Racing):
        is_away = True

        def commit(self, *change: object, **options: object) -> Table:
            if not late:
                late.append(lambda: Racing.commit(self, *change, **options))
                raise CommitStateUnknown("no answer")
            return super().commit(*change, **options)

        def load(self, *args: Any, **more: Any) -> Table:
            if late and self.is_away:
                raise CommitStateUnknown("away")
            return t.catalog.load(*args, **more)

    catalog = Late(t.catalog, [])
    committer = t.committer(catalog)
    commit = t.round(([row(1, 11)], []))
    assert isinstance(committer.commit(commit), TableFailed)
    late[0]()
    catalog.is_away = False
    committed(committer.commit(commit))
    t.check()
    committed(committer.commit(t.round(([row(1, 12)], []))))
    t.check()


@pytest.mark.parametrize("point", ["D1", "C8", "C9", "C10", "C11", "C12"])
def test_a_kill_between_any_two_steps_loses_nothing(
    upserts: Upserts, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A successor with the same announcements brings the rows in once."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    commit = t.round(([row(1, 11), row(3, 30)], []), ([row(3, 31)], [row(2, 0)]))

    with killed_at(point, monkeypatch):
        t.committer().commit(commit)
    committed(t.committer().commit(commit))
    t.check()


def test_a_failed_commit_leaves_no_copies(upserts: Upserts) -> None:
    """If every attempt was refused, the copies are deleted; the files of the round stay."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))

    class Refusing(Racing):
        def commit(self, *_: object, **__: object) -> Table:
            raise CommitConflict("no")

    commit = t.round(([row(1, 11)], []))
    before = t.stored_files()
    assert isinstance(t.committer(Refusing(t.catalog, [])).commit(commit), TableFailed)
    assert t.stored_files() == before
    committed(t.committer().commit(commit))
    t.check()


def test_a_second_coordinator_fences_the_first(upserts: Upserts) -> None:
    """As with appends."""
    t = upserts
    zombie = t.committer()
    committed(zombie.commit(t.round(([row(1, 10)], []))))
    commit = t.round(([row(1, 11)], []))
    committed(t.committer().commit(commit))
    assert isinstance(zombie.commit(commit), CoordinatorFenced)
    t.check()


def test_a_repeated_announcement_changes_nothing(upserts: Upserts) -> None:
    """Of files that are in the table, were copied, or were superseded in their round."""
    t, committer = upserts, upserts.committer()
    first = t.round(([row(1, 10), row(2, 20)], []), ([row(1, 11)], []), ([row(1, 12)], []))
    committed(committer.commit(first))
    committed(committer.commit(t.round(([row(2, 22)], []))))

    def repeated(envelope: Any) -> TableCommit:
        t.offset += 1
        return table_commit([dataclasses.replace(envelope, offset=t.offset)])

    for envelope in first.announcements:
        committed(committer.commit(repeated(envelope)))
        t.check()
    for envelope in first.announcements:  # a successor does not remember the files
        outcome = t.committer().commit(repeated(envelope))
        if isinstance(outcome, TableFailed):
            assert (outcome.code, outcome.is_retriable) == ("announced_file_missing", False)
        t.check()


def test_a_data_file_that_was_superseded_is_not_added_later(upserts: Upserts) -> None:
    """Also if its announcement is repeated without the delete file: it is gone."""
    t = upserts
    first = t.round(([row(1, 10)], []), ([row(1, 11)], []))
    committed(t.committer().commit(first))
    envelope = first.announcements[0]
    data_only = dataclasses.replace(envelope.event.payload, delete_files=())
    event = dataclasses.replace(envelope.event, payload=data_only)
    commit = table_commit([dataclasses.replace(envelope, event=event, offset=t.offset)])
    outcome = t.committer().commit(commit)
    assert isinstance(outcome, TableFailed)
    assert (outcome.code, outcome.is_retriable) == ("announced_file_missing", False)
    t.check()


def test_expired_snapshots_take_replaced_files_with_them(upserts: Upserts) -> None:
    """The store has the files of kept snapshots, and no others."""
    t = upserts
    committer = t.committer(**EXPIRING)
    for n in range(BATCH + 4):
        committed(committer.commit(t.round(([row(1, n)], []), ([row(1, n + 10)], []))))
    t.check()
    table = t.reloaded()
    assert len(table.metadata.snapshots) < BATCH
    kept = {
        entry.data_file.file_path
        for snapshot in table.metadata.snapshots
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
    }
    while t.stored_files() - kept:  # another thread deletes them; the test has a timeout
        time.sleep(0.05)
    committer.close()
    assert t.stored_files() == kept


def test_files_without_field_ids_are_found_by_the_name_mapping(upserts: Upserts) -> None:
    """As readers do; without a mapping the commit uses delete files."""
    t = upserts
    committed(t.committer().commit(t.round(([row(5, 50)], []))))
    table = t.catalog._client().load_table(t.name)
    path = f"{table.location()}/data/imported.parquet"
    plain = pa.schema([("id", pa.int32()), ("region", pa.string()), ("value", pa.int64())])
    rows = [row(1, 10), row(2, 20)]
    with table.io.new_output(path).create() as out:
        pq.write_table(pa.Table.from_pylist(rows, plain), out, store_schema=False)
    table.add_files([path])
    t.rows += rows
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    t.check()
    assert t.reloaded().name_mapping() is not None


def test_position_deletes_of_the_table_use_delete_files(upserts: Upserts) -> None:
    """They name the files that would be replaced."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    table = t.reloaded()
    deletes = dataclasses.replace(
        delete_file(table, [row(9, 0)], ["id"]),
        content=FileContent.POSITION_DELETES,
        equality_ids=None,
    )
    commit = table_commit([announced(reference(table), [], [deletes], offset=t.offset, batch=9)])
    t.offset += 1
    for each in (commit, t.round(([row(1, 11)], []))):
        committed(t.committer().commit(each))
        summary = t.reloaded().current_snapshot().summary.additional_properties
        assert summary["icefloe.copy-on-write.not-used"] == "position_deletes"


def test_too_many_bytes_use_delete_files(upserts: Upserts) -> None:
    """The commit is made as without copy-on-write, counted, and named in its snapshot."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    limited = t.committer(iceberg__tables__copy_on_write_max_bytes="10")
    committed(limited.commit(t.round(([row(1, 11)], []))))
    assert metric("copy_on_write_fallbacks", ("c", ".".join(t.name), "bytes")) == 1
    table = t.reloaded()
    summary = table.current_snapshot().summary.additional_properties
    assert summary["icefloe.copy-on-write.not-used"] == "bytes"
    assert summary["total-equality-deletes"] == "1"
    # later copies keep their sequence number: the delete file still applies to them
    committed(t.committer().commit(t.round(([row(2, 21)], []))))
    assert rows_with_deletes(t.reloaded()) == counted(t.rows, ["id", "region", "value"])


def test_a_time_limit_uses_delete_files(upserts: Upserts) -> None:
    """A slow store does not hold up the rounds of the connector."""
    t = upserts
    committed(t.committer().commit(t.round(([row(1, 10)], []))))
    t.clock = SlowClock()
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    summary = t.reloaded().current_snapshot().summary.additional_properties
    assert summary["icefloe.copy-on-write.not-used"] == "time"


class SlowClock(QuickClock):
    """A clock on which everything takes a minute."""

    def monotonic_ms(self) -> int:
        """Milliseconds, a minute later each time."""
        self.slept_ms.append(limits.DURATION_MS_MAX)
        return super().monotonic_ms()


def rows_with_deletes(table: Table) -> Counter[tuple[Any, ...]]:
    """Rows of a table with equality deletes by ``id``, as the specification says."""
    head = table.current_snapshot()
    deleted: list[tuple[int, Any]] = []
    rows = []
    for manifest in head.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            with table.io.new_input(entry.data_file.file_path).open() as stream:
                content = pq.read_table(stream).to_pylist()
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                deleted += [(entry.sequence_number, each["id"]) for each in content]
            else:
                rows += [(entry.sequence_number, each) for each in content]
    kept = [
        each
        for number, each in rows
        if not any(each["id"] == key and number < at for at, key in deleted)
    ]
    return counted(kept, ["id", "region", "value"])
