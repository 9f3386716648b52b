"""Files of expired snapshots on a real table: what remains is readable, what is left is needed."""

from __future__ import annotations

import random
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate

from coordinator.maintenance.expired_files import ExpiredFiles, expired_files
from coordinator.maintenance.snapshot_expiry import ExpiryPolicy, due

ROWS = pa.schema([("id", pa.int64()), ("part", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """An empty table in a catalog of its own."""
    catalog = SqlCatalog("c", uri="sqlite://", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    properties = {"commit.manifest.min-count-to-merge": "3"}
    return catalog.create_table("db.t", ROWS, properties=properties)


def append(table: Table, part: int, *, branch: str | None = None) -> None:
    """Add a file of ten rows."""
    rows = pa.table({"id": list(range(10)), "part": [part] * 10}, schema=ROWS)
    table.append(rows, branch=branch or "main")


def expire(table: Table, removed: tuple[int, ...]) -> ExpiredFiles:
    """Remove snapshots from the metadata and delete what only they need."""
    before = table.metadata
    assert table.catalog is not None
    table.catalog.commit_table(
        table, (), (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": removed}),)
    )
    table.refresh()
    expired = expired_files(before, removed, table.metadata, table.io)
    for path in expired.paths:
        table.io.delete(path)
    return expired


def needed(table: Table) -> set[str]:
    """Every file that some snapshot reads, as a path."""
    paths = set()
    for snapshot in table.metadata.snapshots:
        paths.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            paths.add(manifest.manifest_path)
            paths |= {e.data_file.file_path for e in manifest.fetch_manifest_entry(table.io)}
    return {urlsplit(path).path for path in paths}


def stored(table: Table) -> set[str]:
    """Every file in the table's folder but its metadata versions."""
    folder = Path(urlsplit(table.location()).path)
    files = {p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}
    return {str(p) for p in files if not p.name.endswith(".metadata.json")}


def counts(table: Table) -> dict[int, int]:
    """Rows of every snapshot, read from its files."""
    return {
        s.snapshot_id: table.scan(snapshot_id=s.snapshot_id).to_arrow().num_rows
        for s in table.metadata.snapshots
    }


def test_only_needed_files_are_stored_after_an_expiry(table: Table) -> None:
    """Appends, merged manifests and rewritten files."""
    for n in range(8):
        append(table, n)
    table.delete("part == 2")
    table.delete("id == 3")  # rewrites every file
    append(table, 9)
    before = counts(table)
    keep = {s.snapshot_id for s in table.metadata.snapshots[-2:]}
    removed = tuple(s.snapshot_id for s in table.metadata.snapshots[:-2])
    expired = expire(table, removed)
    assert expired.is_complete
    assert expired.content
    assert stored(table) == needed(table)
    assert counts(table) == {id_: rows for id_, rows in before.items() if id_ in keep}


def test_a_tag_keeps_the_files_that_it_reads(table: Table) -> None:
    """Files dropped after a tagged snapshot stay, as the tag reads them."""
    append(table, 0)
    append(table, 1)
    tagged = table.metadata.current_snapshot_id
    assert tagged is not None
    table.manage_snapshots().create_tag(tagged, "kept").commit()
    table.delete("part == 1")
    append(table, 2)
    append(table, 3)
    before = counts(table)
    policy = ExpiryPolicy(max_age_ms=-1, batch=1)
    removed = due(table.metadata, policy, branch="main", now_ms=2**60)
    assert tagged not in removed
    removed = tuple(id_ for id_ in removed if id_ != table.metadata.current_snapshot_id)
    expired = expire(table, removed)
    assert not expired.is_complete
    assert counts(table) == {id_: n for id_, n in before.items() if id_ not in removed}
    assert needed(table) <= stored(table)


def test_files_that_no_snapshot_listed_are_kept(table: Table) -> None:
    """For example a file that waits for its commit."""
    append(table, 0)
    waiting = Path(urlsplit(table.location()).path) / "data" / "announced.parquet"
    waiting.write_bytes(b"rows")
    append(table, 1)
    expire(table, (table.metadata.snapshots[0].snapshot_id,))
    assert waiting.exists()


def test_no_file_expires_while_its_snapshot_exists(table: Table) -> None:
    """A removal that did not happen removes no file."""
    append(table, 0)
    append(table, 1)
    first = table.metadata.snapshots[0].snapshot_id
    assert not expired_files(table.metadata, (first,), table.metadata, table.io).paths


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.matrix) for seed in range(4, 12))],
)
def test_every_remaining_snapshot_stays_readable(table: Table, seed: int) -> None:
    """Random appends, deletes, tags, branches and rollbacks, with expiries in between."""
    chance = random.Random(seed)
    append(table, 0)
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, "side").commit()
    for step in range(24):
        match chance.choice(("append", "append", "delete", "side", "tag", "rollback", "expire")):
            case "append":
                append(table, chance.randrange(4))
            case "delete":
                table.delete(f"part == {chance.randrange(4)}")
            case "side":
                append(table, chance.randrange(4), branch="side")
            case "tag":
                chosen = chance.choice(table.metadata.snapshots).snapshot_id
                table.manage_snapshots().create_tag(chosen, f"t{step}").commit()
            case "rollback":
                head = table.current_snapshot()
                if head is not None and head.parent_snapshot_id is not None:
                    table.manage_snapshots().rollback_to_snapshot(head.parent_snapshot_id).commit()
            case "expire":
                before = counts(table)
                heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
                removed = tuple(id_ for id_ in before if id_ not in heads and chance.random() < 0.6)
                if removed:
                    expire(table, removed)
                assert counts(table) == {i: n for i, n in before.items() if i not in removed}
                assert needed(table) <= stored(table)
