"""When the files of a table are due for maintenance, by counts that need no listing."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata

from connect.config.connector import MaintenanceConfig
from connect.protocol.maintenance_tag import READ_PROPERTY
from control_schemas.events import ContentFile, FileContent
from coordinator.maintenance.due_work import DueWork, limits
from coordinator.maintenance.file_counters import PARTITIONS_MAX, FileCounters, due
from tests.support.snapshot_metadata import branch, line, metadata
from tests.support.tables import connector

MIB = 2**20
CONFIG = MaintenanceConfig(min_input_files=5, min_delete_files=3, min_manifests=4)


def files(count: int, *, size: int = MIB, spec_id: int = 0) -> list[ContentFile]:
    """Data files of one partition."""
    return [
        ContentFile(FileContent.DATA, f"{n}.parquet", "PARQUET", spec_id, (), 1, size)
        for n in range(count)
    ]


def table(count: int, *, replaced: int | None = None, **newest: Any) -> TableMetadata:
    """A table with snapshots 1 to ``count``, each of one small file."""
    snapshots = line(count, summary={"added-data-files": "1", "added-files-size": "100"})
    if replaced is not None:
        snapshots[replaced - 1]["summary"] = {"operation": "replace", "deleted-data-files": "9"}
    snapshots[-1]["summary"] = {**snapshots[-1]["summary"], **newest}
    return metadata(snapshots, {"main": branch(count)})


def committed(counters: FileCounters, metadata: TableMetadata, *added: ContentFile) -> None:
    """Count a commit."""
    counters.committed(added, metadata, branch="main", manifests=None, target_bytes=None)


def test_small_files_of_one_partition_are_counted() -> None:
    """Large files, and files of other partitions, do not make a partition due."""
    counters = FileCounters()
    committed(counters, table(1), *files(4), *files(3, spec_id=1), *files(2, size=400 * MIB))
    assert not due(counters, CONFIG)
    committed(counters, table(2), *files(1))
    assert due(counters, CONFIG) == {"small-files": 5}


def test_a_successor_estimates_earlier_commits() -> None:
    """It uses the summaries of the snapshots since the last compaction."""
    counters = FileCounters()
    committed(counters, table(5), *files(1))
    assert counters.small_files_max == 5
    after = FileCounters()
    committed(after, table(6, replaced=3), *files(1))
    assert after.small_files_max == 3


def test_a_compaction_resets_the_count() -> None:
    """Of any engine, also between two commits of the coordinator."""
    counters = FileCounters()
    committed(counters, table(4), *files(4))
    committed(counters, table(6, replaced=5), *files(1))
    assert counters.small_files_max == 1
    committed(counters, table(7, replaced=5), *files(1))
    assert counters.small_files_max == 2


@pytest.mark.parametrize("is_successor", [True, False])
@pytest.mark.parametrize(
    ("read", "left"), [("3", 3), ("4", 2), ("5", 1), (None, 1), ("99", 1), ("x", 1)]
)
def test_files_committed_during_a_compaction_still_wait(
    read: str | None, left: int, *, is_successor: bool
) -> None:
    """It took only files of the snapshot that it read. Another engine names none."""
    counters = FileCounters()
    if not is_successor:
        committed(counters, table(5), *files(1))
    compacted = table(7, replaced=6)
    properties = compacted.snapshots[5].summary
    assert properties is not None
    if read is not None:
        properties[READ_PROPERTY] = read
    committed(counters, compacted, *files(1))
    assert counters.small_files_max == left


def test_files_of_other_writers_count_evenly_for_all_partitions() -> None:
    """Forty files in ten partitions count as four files per partition."""
    snapshots = line(2)
    snapshots[0]["summary"] = {
        "added-data-files": "40",
        "added-files-size": "4000",
        "changed-partition-count": "10",
    }
    counters = FileCounters()
    committed(counters, metadata(snapshots, {"main": branch(2)}), *files(1))
    assert counters.small_files_max == 5


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 30])
def test_an_invalid_summary_counts_as_zero(text: str) -> None:
    """Other writers may store any text."""
    counters = FileCounters()
    newest = {"total-delete-files": text, "added-data-files": text}
    committed(counters, table(1, **newest), *files(1))
    assert not due(counters, CONFIG)


def test_delete_files_come_first() -> None:
    """They are the most urgent work; their number comes from Iceberg's summary."""
    counters = FileCounters()
    found = table(1, **{"total-delete-files": "3"})
    counters.committed(files(5), found, branch="main", manifests=4, target_bytes=None)
    assert list(due(counters, CONFIG).items()) == [
        ("delete-files", 3),
        ("small-files", 5),
        ("manifests", 4),
    ]
    assert not due(counters, MaintenanceConfig(orphan_age_ms=1))


def test_the_count_is_bounded() -> None:
    """In a table with many partitions, those with the most files are counted."""
    counters = FileCounters()
    many = [f for n in range(PARTITIONS_MAX + 10) for f in files(1 + (n == 3), spec_id=n)]
    committed(counters, table(1), *many)
    assert len(counters.small_files) == PARTITIONS_MAX
    assert counters.small_files_max == 2


def test_due_work_is_reported_until_it_is_done() -> None:
    """Excluded tables are not counted; the end of due work is reported once."""
    key = "iceberg__maintenance__rewrite_data_files__"
    config = connector(
        "c",
        ["db.a", "db.b"],
        **{
            f"{key}enabled": "true",
            f"{key}min_input_files": "2",
            "iceberg__table__db__b__maintenance_enabled": "false",
        },
    )
    reports: list[tuple[str, dict[str, int]]] = []
    work = DueWork(config, lambda name, found: reports.append((name, dict(found))))
    for name in ("db.a", "db.b"):
        work.committed(name, files(1), table(1), 1)
        work.committed(name, files(1), table(2), 1)
    for count in (4, 5):
        work.committed("db.a", files(1), table(count, replaced=3), 1)
    assert reports == [
        ("db.a", {}),
        ("db.a", {"small-files": 2}),
        ("db.a", {}),
        ("db.a", {"small-files": 2}),
    ]
    given = limits(config)
    assert given is not None
    assert given.pop("tables") == ["db.a"]
    assert MaintenanceConfig(**given) == config.maintenance
