"""Metadata files that are read without their history and written with it, as PyIceberg writes."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField, StringType

from connect.errors import CommitRefused
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.catalog import metadata_files
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.metadata_files import adds_only, find_history
from connect.gateways.catalog.metadata_v3 import write_metadata
from connect.gateways.catalog.table_metadata import changed_metadata, referenced_only

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False, doc='"snapshots":[{"é": [1]}],'),
)
TRICKY = {
    "brackets": '],"snapshot-log":[{"snapshots":[]',
    "snapshots": '"snapshots":[],"snapshot-log":[]',
    "unicode": 'ünï \u2028 \U0001f600 \\ " ] }',
}


@pytest.fixture(params=[1, 256 * 1024], ids=["from the file", "from the kept text"])
def gateway(request: pytest.FixtureRequest, tmp_path: Path) -> CatalogGateway:
    """A SQL catalog whose metadata files all count as long, or as short."""
    gateway = opened(tmp_path)
    files_of(gateway).text_bytes_max = request.param
    return gateway


def files_of(gateway: CatalogGateway) -> Any:
    """Return what reads the metadata files in this thread."""
    client: Any = gateway._client()
    return client._files


def opened(folder: Path) -> CatalogGateway:
    """Another client of the catalog."""
    return open_catalog(
        "iceberg",
        {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        },
    )


def added(metadata: TableMetadata, number: int, *, tag: str | None = None) -> list[TableUpdate]:
    """The updates of a commit, with a text that JSON escapes."""
    head = metadata.refs.get("main")
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": 2**62 + number,
            "parent-snapshot-id": None if head is None else head.snapshot_id,
            "sequence-number": getattr(metadata, "last_sequence_number", 0) + 1,
            "timestamp-ms": 4_000_000_000_000 + number,
            "manifest-list": f"file:///t/é{number}.avro",
            "schema-id": 0,
            "summary": Summary(operation=Operation.APPEND, **{f"x{number}": '{"0":[1]}', **TRICKY}),
            **({"first-row-id": 3 * number, "added-rows": 3} if is_v3(metadata) else {}),
        }
    )
    main = {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": 2**62 + number}
    refs = [main] if tag is None else [main, {**main, "ref-name": tag, "type": SnapshotRefType.TAG}]
    return [
        AddSnapshotUpdate(snapshot=snapshot),
        *(SetSnapshotRefUpdate.model_validate(ref) for ref in refs),
        SetPropertiesUpdate(updates={"offsets": f'{{"0":{number}}}'}),
    ]


def is_v3(metadata: TableMetadata) -> bool:
    """Whether the table has row lineage."""
    return metadata.format_version == 3


def commit(gateway: CatalogGateway, table: Table, updates: list[TableUpdate]) -> Table:
    """Commit without reading the answer."""
    head = table.metadata.refs.get("main")
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId.model_validate(
            {"ref": "main", "snapshot-id": None if head is None else head.snapshot_id}
        ),
    )
    return gateway.commit(table, requirements, updates, reads_answer=False)


def file_of(table: Table) -> bytes:
    """The table's present metadata file."""
    return Path(table.metadata_location.removeprefix("file://")).read_bytes()


def new_table(gateway: CatalogGateway, *, name: str = "t", **properties: str) -> Table:
    """An empty table."""
    return gateway.create(("db", name), SCHEMA, properties={**TRICKY, **properties})


@pytest.fixture
def short_commits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each file that any client wrote by copying."""
    noted: list[str] = []
    original = metadata_files.MetadataFiles.with_history

    def note(self: Any, before: Table, after: TableMetadata, location: str) -> TableMetadata:
        carrying = original(self, before, after, location)
        noted.append(location)
        return carrying

    monkeypatch.setattr(metadata_files.MetadataFiles, "with_history", note)
    return noted


@pytest.mark.parametrize("version", ["2", "3"])
def test_the_file_has_the_bytes_that_pyiceberg_writes(
    gateway: CatalogGateway, short_commits: list[str], version: str
) -> None:
    """From the first commit on, with tags at old snapshots, and with entries that leave the log."""
    properties = {"format-version": version, "write.metadata.previous-versions-max": "3"}
    new_table(gateway, **properties)
    whole = gateway.load(("db", "t"))
    for number in range(1, 9):
        tag = f"tag{number}" if number % 3 == 0 else None
        updates = added(whole.metadata, number, tag=tag)
        expected = changed_metadata(whole.metadata, updates, whole.metadata_location)
        commit(gateway, gateway.load(("db", "t"), with_history=number < 3), updates)
        whole = gateway.load(("db", "t"))
        path = f"file:///{uuid4()}"
        written = written_text(expected, path)
        assert file_of(whole).decode() == written
        short = gateway.load(("db", "t"), with_history=False)
        assert short.metadata == referenced_only(whole.metadata)
    assert len(short_commits) == 8
    assert len(whole.metadata.snapshots) == len(whole.metadata.snapshot_log) == 8
    assert len(short.metadata.snapshots) == 3


def written_text(metadata: TableMetadata, path: str) -> str:
    """What is written of metadata with its history."""
    written: list[bytes] = []

    class Output:
        def new_output(self, _path: str) -> Any:
            return self

        def create(self, *, overwrite: bool) -> Any:
            assert overwrite  # otherwise an object store is asked whether the file exists
            return self

        location = path

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_error: object) -> None:
            """Close nothing."""

        def write(self, piece: bytes) -> None:
            written.append(bytes(piece))

    write_metadata(metadata, Output(), path)  # type: ignore[arg-type]  # what is used of it
    return b"".join(written).decode()


def pretty(content: dict[str, Any]) -> bytes:
    """As Iceberg's Java library writes: with spaces, and the log at the end."""
    log = content.pop("snapshot-log")
    return json.dumps({**content, "snapshot-log": log, "metadata-log": []}, indent=2).encode()


def escaped(content: dict[str, Any]) -> bytes:
    """Without a character that is not ASCII."""
    return json.dumps(content, ensure_ascii=True).encode()


def spaced(content: dict[str, Any]) -> bytes:
    """With characters of several bytes."""
    return json.dumps(content, ensure_ascii=False).encode()


def log_first(content: dict[str, Any]) -> bytes:
    """In an order that no client writes."""
    return json.dumps({"snapshot-log": content.pop("snapshot-log"), **content}).encode()


def twice(content: dict[str, Any]) -> bytes:
    """With a first list that does not count."""
    return b'{"snapshots":[],"snapshot-log":[],' + json.dumps(content).encode()[1:]


def without_branches(content: dict[str, Any]) -> bytes:
    """With a main branch that is implied."""
    del content["refs"]["main"]
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("form", "is_copied"),
    [
        (pretty, True),
        (escaped, True),
        (spaced, True),
        (twice, True),
        (without_branches, True),
        (log_first, False),
    ],
)
def test_files_of_other_writers_keep_their_history(
    gateway: CatalogGateway,
    short_commits: list[str],
    form: Callable[[dict[str, Any]], bytes],
    *,
    is_copied: bool,
) -> None:
    """The result equals PyIceberg's as JSON; a form that is not known is parsed."""
    table = new_table(gateway)
    for number in range(1, 5):
        table = commit(
            gateway, table, added(table.metadata, number, tag="t" if number < 3 else None)
        )
    whole = gateway.load(("db", "t"))
    Path(whole.metadata_location.removeprefix("file://")).write_bytes(
        form(json.loads(file_of(whole)))
    )
    short_commits.clear()
    for number in range(5, 8):
        client = opened(Path(whole.location().removeprefix("file://")).parents[2])
        whole = client.load(("db", "t"))
        updates = added(whole.metadata, number)
        expected = changed_metadata(whole.metadata, updates, whole.metadata_location)
        short = client.load(("db", "t"), with_history=False)
        assert short.metadata == referenced_only(whole.metadata)
        commit(client, short, updates)
        whole = client.load(("db", "t"))
        assert json.loads(file_of(whole)) == json.loads(written_text(expected, "file:///x"))
        client.close()
    assert len(short_commits) == (3 if is_copied else 2)
    assert len(whole.metadata.snapshots) == 7


def test_a_changed_file_is_not_copied_by_old_positions(gateway: CatalogGateway) -> None:
    """Another size or other brackets: the file is parsed again."""
    table = new_table(gateway)
    for number in range(1, 4):
        table = commit(gateway, table, added(table.metadata, number))
    whole = gateway.load(("db", "t"))
    content = json.loads(file_of(whole))
    for text in (json.dumps(content, indent=1), json.dumps(content)):
        Path(whole.metadata_location.removeprefix("file://")).write_text(text)
        short = gateway.load(("db", "t"), with_history=False)
        assert short.metadata == referenced_only(TableMetadataUtil.parse_raw(text))
    commit(gateway, short, added(whole.metadata, 4))
    assert len(gateway.load(("db", "t")).metadata.snapshots) == 4


def test_a_change_that_needs_the_history_has_it(
    gateway: CatalogGateway, short_commits: list[str]
) -> None:
    """A snapshot expires, and a tag names an old snapshot."""
    table = new_table(gateway)
    for number in range(1, 5):
        table = commit(gateway, table, added(table.metadata, number))
    short_commits.clear()
    to_old = {"ref-name": "old", "type": SnapshotRefType.TAG, "snapshot-id": 2**62 + 2}
    for more in (
        SetSnapshotRefUpdate.model_validate(to_old),
        RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [2**62 + 1]}),
    ):
        table = gateway.load(("db", "t"), with_history=False)
        number = 5 + len(gateway.load(("db", "t")).metadata.metadata_log)
        whole = gateway.load(("db", "t"))
        updates = [*added(whole.metadata, number), more]
        assert not adds_only(updates)
        gateway.commit(whole, (), updates, reads_answer=False)
    assert short_commits == []
    metadata = gateway.load(("db", "t")).metadata
    assert metadata.snapshot_by_id(2**62 + 1) is None
    assert len(metadata.snapshots) == 5
    assert metadata.refs["old"].snapshot_id == 2**62 + 2


def test_metadata_that_carries_its_history_has_all_of_it_for_any_writer(
    gateway: CatalogGateway,
) -> None:
    """The text that PyIceberg's own writers ask for."""
    table = new_table(gateway)
    for number in range(1, 4):
        table = commit(gateway, table, added(table.metadata, number))
    client: Any = gateway._client()
    table = gateway.load(("db", "t"), with_history=False)
    updates = added(table.metadata, 4)
    with client._files.without_history():
        current = client.load_table(("db", "t"))
        staged = client._update_and_stage_table(current, ("db", "t"), (), tuple(updates))
        text = staged.metadata.model_dump_json()
    assert len(current.metadata.snapshots) == 1
    assert len(TableMetadataUtil.parse_raw(text).snapshots) == 4


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b"{",
        b'{"format-version":2,"snapshots":[{],"snapshot-log":[]}',
        b'{"format-version":1,"snapshots":[],"snapshot-log":[]}',
        b'{"format-version":2,"x":{"snapshots":[],"snapshot-log":[]}}',
        b'{"format-version":2,"snapshots":[],"x":{"snapshots":[]},"snapshot-log":[]}',
        b'{"format-version":2,"snapshots":[ ],"snapshot-log":[]}',
        b'{"format-version":2,"snapshots":[3],"snapshot-log":[],"refs":{"a":{"snapshot-id":1}}}',
        b'{"format-version":2,"snapshots":[],"snapshot-log":[3]}',
        b'{"format-version":2,"snapshots":[]}',
        b'{"format-version":2,"snapshots":[],"snapshot-log":[],"refs":[]' + b"[" * 100_000,
        b'{"format-version":2,"snapshots":' + b"[" * 100_000 + b',"snapshot-log":[]}',
    ],
)
def test_the_history_is_not_found_in_other_text(text: bytes) -> None:
    """Such a file is read in the ordinary way, which reports what is wrong."""
    assert find_history(text) is None


def test_threads_leave_out_the_history_separately(gateway: CatalogGateway) -> None:
    """And nothing is left out after an error."""
    table = new_table(gateway)
    client: Any = gateway._client()
    with pytest.raises(ZeroDivisionError), client._files.without_history():
        _ = 1 / 0
    assert not client._files.leaves_out
    assert gateway.load(("db", "t")).metadata == table.metadata


def test_few_positions_are_remembered(gateway: CatalogGateway) -> None:
    """Only those of the last files of a table, and of the last tables."""
    files = files_of(gateway)
    files.known_max = 2
    for name in ("t", "u", "v"):
        table = new_table(gateway, name=name)
        for number in range(1, 8):
            table = commit(gateway, table, added(table.metadata, number))
        assert table.metadata_location in list(files._known.values())[-1]
    assert len(files._known) == 2
    assert sum(map(len, files._known.values())) <= 2 * 3


def test_metadata_of_an_unpartitioned_table_without_snapshots() -> None:
    """Both lists are empty: the first commit follows them."""
    metadata = new_table_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {}
    )
    found = find_history(metadata.model_dump_json().encode())
    assert found is not None
    assert found.start == found.between_at
    assert found.short == b'],"snapshot-log":['


@pytest.mark.parametrize("suffix", [".metadata.json", ".gz.metadata.json"])
@pytest.mark.parametrize("is_large", [False, True])
def test_a_metadata_file_has_a_size_limit(tmp_path: Path, suffix: str, is_large: bool) -> None:
    """After decompression: the owner of a table can name a small file that is a large one."""
    gateway = opened(tmp_path)
    text = file_of(new_table(gateway)) + b" " * (64 * 2**20 if is_large else 0)
    path = tmp_path / f"warehouse/00007-{uuid4()}{suffix}"
    half = len(text) // 2  # members of one file
    members = b"".join(gzip.compress(part) for part in (text[:half], text[half:]))
    path.write_bytes(members if suffix.startswith(".gz") else text)
    del text
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (f"file://{path}",))
    install(AccessPolicy(answer_bytes_max=2**20))
    tracemalloc.start()
    try:
        if not is_large:
            assert gateway.load(("db", "t")).metadata.location
            return
        with pytest.raises(CommitRefused) as refused:
            gateway.load(("db", "t"))
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
        install(AccessPolicy())
    assert refused.value.code == "metadata_too_large"
    assert refused.value.coordinates["table"] == "db.t"
