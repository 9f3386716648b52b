"""Copy-on-write commits to Iceberg tables: rows, files, bounds."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import DateType, LongType, TimestampType

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from control_schemas.events import FileContent
from control_schemas.events import PartitionField as EventPartition
from coordinator.kernel.effects import TableFailed
from coordinator.maintenance.snapshot_expiry import BATCH
from tests.support.table_harness import EXPIRING
from tests.support.tables import announced, reference, table_commit, written_file
from tests.support.upserts import (
    COPIES_NOT_USED,
    LineageUpserts,
    SlowClock,
    Upserts,
    VectorUpserts,
    committed,
    counted,
    delete_file,
    head_of,
    live_paths,
    metric,
    row,
)

VERSIONS = [pytest.param(Upserts, id="v2"), pytest.param(LineageUpserts, id="v3")]


@pytest.mark.parametrize("tables", VERSIONS)
def test_a_round_replaces_rows_in_one_snapshot_without_delete_files(
    catalog: CatalogGateway, tables: type[Upserts]
) -> None:
    """On every backend: only files with superseded rows are written again."""
    t = tables(catalog)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 10), row(2, 20)], []))))
    committed(committer.commit(t.round(([row(7, 70)], []))))
    t.check()
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


@pytest.mark.parametrize("tables", VERSIONS)
def test_null_keys_are_equal(sql_catalog_properties: dict[str, str], tables: type[Upserts]) -> None:
    """In one and in several key columns."""
    for keys in (("id",), ("id", "region")):
        t = tables(open_catalog("iceberg", sql_catalog_properties), keys=keys)
        committer = t.committer()
        rows = [row(None, 1), row(1, 2, None), row(None, 3, None), row(1, 4)]
        committed(committer.commit(t.round((rows if len(keys) == 2 else rows[:2], []))))
        t.check()
        committed(committer.commit(t.round(([row(None, 5), row(1, 6, None)], []))))
        t.check()
        t.catalog.close()


@pytest.mark.parametrize("tables", VERSIONS)
def test_a_key_moves_to_another_partition(
    sql_catalog_properties: dict[str, str], tables: type[Upserts]
) -> None:
    """Deletes under a spec without partitions reach all partitions."""
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    t = tables(open_catalog("iceberg", sql_catalog_properties), spec)
    committer = t.committer()
    committed(committer.commit(t.round(([row(1, 1, "eu"), row(2, 2, "us"), row(3, 3, None)], []))))
    t.check()
    committed(committer.commit(t.round(([row(1, 4, "us"), row(3, 5, "eu")], []))))
    t.check()
    folders = {path.split("/data/")[1].split("/")[0] for path in live_paths(t.reloaded())}
    assert folders
    t.catalog.close()


@pytest.mark.parametrize("tables", [*VERSIONS, pytest.param(VectorUpserts, id="vectors")])
def test_old_rows_are_found_behind_a_dropped_partition_field(
    sql_catalog_properties: dict[str, str], tables: type[Upserts]
) -> None:
    """A table of format version 1 keeps the field without values; so it is after an upgrade."""
    spec = PartitionSpec(
        PartitionField(1, 1000, VoidTransform(), "id_dropped"),
        PartitionField(2, 1001, IdentityTransform(), "region"),
    )
    catalog = open_catalog("iceberg", sql_catalog_properties)
    t = tables(catalog, spec)
    committer = t.committer()
    for value in (1, 2):
        committed(committer.commit(t.round(([row(1, value), row(7, value, "us")], []))))
    t.check()
    catalog.close()


def test_the_least_key_is_found_behind_a_truncated_partition(
    sql_catalog_properties: dict[str, str],
) -> None:
    """The truncated value of the least number exceeds its type; in Java it is the largest."""
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(100), "id_trunc"))
    catalog = open_catalog("iceberg", sql_catalog_properties)
    t = Upserts(catalog, spec)
    in_java = (EventPartition(1000, "id_trunc", "int", 2147483596),)
    t.data_files = lambda rows: [written_file(t.reloaded(), rows, partition=in_java)]
    committer = t.committer()
    for value in (1, 2):
        committed(committer.commit(t.round(([row(-(2**31), value)], []))))
    t.check()
    catalog.close()


def test_old_files_keep_their_schema(copies: Upserts) -> None:
    """Keys are compared in the table's present types; new columns are null in old rows."""
    t, committer = copies, copies.committer()
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


def test_a_data_file_that_was_superseded_is_not_added_later(copies: Upserts) -> None:
    """Also if its announcement is repeated without the delete file: it is gone."""
    t = copies
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


def test_expired_snapshots_take_replaced_files_with_them(copies: Upserts) -> None:
    """The store has the files of kept snapshots, and no others."""
    t = copies
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


def test_files_without_field_ids_are_found_by_the_name_mapping(copies: Upserts) -> None:
    """As readers do; without a mapping the commit uses delete files."""
    t = copies
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


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_bounds_have_the_unit_of_the_table(copies: Upserts, unit: str) -> None:
    """An imported file may have milliseconds; a wrong bound would hide its rows."""
    t = copies
    table = t.catalog._client().load_table(t.name)
    with table.update_schema() as update:
        update.add_column("at", TimestampType())
    path = f"{table.location()}/data/imported.parquet"
    at = datetime.fromisoformat("2026-01-02T03:04:05")
    columns = [("id", pa.int32()), ("region", pa.string()), ("value", pa.int64())]
    plain = pa.schema([*columns, ("at", pa.timestamp(unit))])
    rows = [{**row(n, n), "at": at} for n in (1, 2)]
    with table.io.new_output(path).create() as out:
        pq.write_table(pa.Table.from_pylist(rows, plain), out, store_schema=False)
    table.add_files([path])
    t.rows += rows
    committed(t.committer().commit(t.round(([], [row(1, 0)]))))
    assert head_of(t)["icefloe.write-mode"] == "copy-on-write"
    t.check()
    assert t.reloaded().scan("at = '2026-01-02T03:04:05'").to_arrow()["id"].to_pylist() == [2]
    [task] = t.reloaded().scan().plan_files()
    assert (4 in task.file.lower_bounds) == (4 in task.file.upper_bounds) == (unit == "us")
    assert 1 in task.file.lower_bounds


def test_position_deletes_of_a_round_use_delete_files(copies: Upserts) -> None:
    """Also those of the table that cannot be read."""
    t = copies
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
        assert head_of(t)[COPIES_NOT_USED] == "position_deletes"


def test_too_many_bytes_use_delete_files(copies: Upserts) -> None:
    """The commit is made as without copy-on-write, counted, and named in its snapshot."""
    t = copies
    committed(t.committer().commit(t.round(([row(1, 10), row(2, 20)], []))))
    limited = t.committer(iceberg__tables__copy_on_write_max_bytes="10")
    committed(limited.commit(t.round(([row(1, 11)], []))))
    assert metric("copy_on_write_fallbacks", ("c", ".".join(t.name), "bytes")) == 1
    assert head_of(t)[COPIES_NOT_USED] == "bytes"
    assert head_of(t)["total-equality-deletes"] == "1"
    # later copies keep their sequence number: the delete file still applies to them
    committed(t.committer().commit(t.round(([row(2, 21)], []))))
    assert rows_with_deletes(t.reloaded()) == counted(t.rows, ["id", "region", "value"])


def test_a_time_limit_uses_delete_files(copies: Upserts) -> None:
    """A slow store does not hold up the rounds of the connector."""
    t = copies
    committed(t.committer().commit(t.round(([row(1, 10)], []))))
    t.clock = SlowClock()
    committed(t.committer().commit(t.round(([row(1, 11)], []))))
    assert head_of(t)[COPIES_NOT_USED] == "time"


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
