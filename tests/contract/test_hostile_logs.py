"""Logs of Parquet folders and Delta tables that a tenant made large, or that name other files."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from connect.errors import CommitRefused
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.parquet.parquet_commit import ParquetCommit, commit_path
from coordinator.kernel.effects import TableCommitted
from tests.support.delta_tables import DeltaRig
from tests.support.parquet_folders import ParquetRig
from tests.support.stack import S3Server, unique_name

LIMIT = 2**20


@contextmanager
def limited(*, is_guarded: bool = False) -> Iterator[None]:
    """The limit of an answer of a catalog, for a node with or without users."""
    install(AccessPolicy(is_guarded=is_guarded, answer_bytes_max=LIMIT))
    try:
        yield
    finally:
        install(AccessPolicy())


def refusal(load: Callable[[], Any]) -> CommitRefused:
    """Load a table that is refused, with little memory."""
    with pytest.raises(CommitRefused) as refused:
        load()
    return refused.value


@pytest.mark.parametrize(
    "path",
    ["_icefloe/checkpoint.json", commit_path(0), commit_path(1)],
    ids=lambda path: path[-15:],
)
def test_a_large_file_of_a_parquet_log_is_not_read(tmp_path: Path, path: str) -> None:
    """Neither a commit nor a checkpoint."""
    rig = ParquetRig(f"file://{tmp_path}")
    large = rig.folder / path
    large.parent.mkdir(parents=True, exist_ok=True)
    with large.open("wb") as file:
        file.truncate(64 * LIMIT)
    with limited():
        tracemalloc.start()
        try:
            error = refusal(lambda: rig.tables().load(("db", "events")))
            assert tracemalloc.get_traced_memory()[1] < 8 * LIMIT
        finally:
            tracemalloc.stop()
    assert error.code == "metadata_too_large"
    assert error.coordinates["table"] == "db.events"


def test_a_large_object_of_a_parquet_log_is_not_read(s3_server: S3Server) -> None:
    """In a bucket of the tenant."""
    settings = {f"iceberg.catalog.{key}": value for key, value in s3_server.properties.items()}
    rig = ParquetRig(f"{s3_server.warehouse}/{unique_name('large')}", raw=settings)
    store: Any = rig.tables().load(("db", "events")).log._store
    store.replace(commit_path(1), b" " * (LIMIT + 1))
    with limited():
        assert refusal(lambda: rig.tables().load(("db", "events"))).code == "metadata_too_large"
        for number in range(60):
            store.replace(f"many/{number:0900}", b"")
        assert len(store.listed("many", "")) == 60
        install(AccessPolicy(answer_bytes_max=60_000))
        assert refusal(lambda: store.listed("many", "")).code == "metadata_too_large"
        assert store.has_files("many")


def test_a_long_listing_of_a_local_log_is_refused(tmp_path: Path) -> None:
    """Names take memory."""
    rig = ParquetRig(f"file://{tmp_path}")
    for number in range(60):
        (rig.folder / "_icefloe/commits" / f"{number:0200}").touch()
    install(AccessPolicy(answer_bytes_max=10_000))
    try:
        assert refusal(lambda: rig.tables().load(("db", "events"))).code == "metadata_too_large"
    finally:
        install(AccessPolicy())


def test_many_values_of_a_parquet_commit_are_refused(tmp_path: Path) -> None:
    """They take much more memory than their text."""
    rig = ParquetRig(f"file://{tmp_path}")
    (rig.folder / commit_path(1)).write_text(f'{{"form": 1, "files": [{"[]," * (LIMIT // 4)}[]]}}')
    with limited():
        assert refusal(lambda: rig.tables().load(("db", "events"))).code == "metadata_too_large"


@pytest.mark.parametrize("digits", ["", "x", "-1", "0"])
def test_the_checkpoint_of_a_parquet_log_is_any_text(tmp_path: Path, digits: str) -> None:
    """A number counts, nothing else."""
    rig = ParquetRig(f"file://{tmp_path}")
    (rig.folder / "_icefloe/checkpoint.json").write_text(f'{{"number": {digits}}}')
    if digits == "-1":
        assert refusal(lambda: rig.tables().load(("db", "events"))).code == "log_lost"
    else:
        assert rig.tables().load(("db", "events")).version == 0


@pytest.mark.parametrize("digits", ["9" * 5_000, "1" * 30, "9" * 20])
def test_a_checkpoint_may_name_any_number(tmp_path: Path, digits: str) -> None:
    """Also one with more digits than Python parses: the table fails with a code, or loads."""
    rig = ParquetRig(f"file://{tmp_path}")
    (rig.folder / "_icefloe/checkpoint.json").write_text(f'{{"number": {digits}}}')
    assert refusal(lambda: rig.tables().load(("db", "events"))).code == "log_lost"


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "../../outside.parquet"},
        {"path": "{root}/outside.parquet"},
        {"path": "_icefloe/commits/x"},
        {"path": "a//b.parquet"},
        {"path": ""},
        {"staged": "../secret.parquet"},
        {"staged": "_icefloe/staged/../../../secret.parquet.staged"},
        {"staged": "{root}/secret.parquet"},
        {"staged": 7},
        {"rows": "1"},
        {"bytes": None},
    ],
)
def test_a_commit_publishes_staged_files_below_the_table_only(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Files of a commit get a second name, and lose the first one."""
    rig = ParquetRig(f"file://{tmp_path / 'lake'}")
    (tmp_path / "secret.parquet").write_bytes(b"x")
    assert isinstance(rig.committer().commit(rig.round(1)), TableCommitted)
    at = rig.folder / commit_path(1)
    stored = json.loads(at.read_text())
    # absolute paths are below the test's folder: without the check the file would be gone
    stored["files"][0] |= {
        key: value.replace("{root}", str(tmp_path)) if isinstance(value, str) else value
        for key, value in changes.items()
    }
    at.write_text(json.dumps(stored))
    (rig.folder / "_icefloe/commits" / f"{1:020}.published").unlink()
    before = sorted(tmp_path.glob("*"))
    error = refusal(
        lambda: rig.committer().commit(rig.round(2)) and rig.tables().load(("db", "events"))
    )
    assert error.code == "log_unreadable"
    assert sorted(tmp_path.glob("*")) == before


@pytest.mark.parametrize(
    "content", ["[" * 100_000, "[]", '{"form": 1}', '{"form": 1, "number": 1, "files": 7}']
)
def test_any_text_is_no_commit(content: str) -> None:
    """The table fails with a code."""
    assert refusal(lambda: ParquetCommit.from_bytes(content.encode())).code == "log_unreadable"


def delta_log(rig: DeltaRig) -> Path:
    """The folder of a local table's log."""
    return Path(rig.location.removeprefix("file://"), "_delta_log")


@pytest.mark.parametrize(
    "name",
    [
        f"{1:020}.json",
        f"{0:020}.checkpoint.parquet",
        f"{0:020}.checkpoint.{'0' * 8}-0000-0000-0000-{'0' * 12}.parquet",
        f"{0:020}.checkpoint.{1:010}.{2:010}.parquet",
        "_last_checkpoint",
    ],
)
def test_a_large_delta_log_is_not_read(tmp_path: Path, name: str) -> None:
    """On a node with users, where the process has connectors of other tenants."""
    rig = DeltaRig(f"file://{tmp_path}")
    (delta_log(rig) / name).write_bytes(b"\0" * (2 * LIMIT))
    with limited(is_guarded=True):
        error = refusal(lambda: rig.store().load(("db", "events")))
    assert error.code == "metadata_too_large"
    assert error.coordinates["table"] == "db.events"


def test_only_what_the_library_reads_of_a_delta_log_counts(tmp_path: Path) -> None:
    """Commits before a checkpoint do not; a checkpoint that is not complete hides none."""
    rig = DeltaRig(f"file://{tmp_path}")
    log = delta_log(rig)
    for number in range(3):
        rig.store().load(("db", "events")).append((), {"app": number}, {}, 1)
    rig.now().create_checkpoint()
    old = log / f"{1:020}.json"
    old.write_bytes(old.read_bytes() + b" " * LIMIT)
    with limited(is_guarded=True):
        assert rig.store().load(("db", "events")).version == 3
        (log / "_last_checkpoint").unlink()
        assert rig.store().load(("db", "events")).version == 3
        (log / f"{3:020}.checkpoint.parquet").unlink()
        part = log / f"{3:020}.checkpoint.{1:010}.{2:010}.parquet"
        part.write_bytes(b"")
        for hint in ('{"version": 3, "parts": 2}', '{"version": 9}', "[", '{"version": "3"}'):
            (log / "_last_checkpoint").write_text(hint)
            assert refusal(lambda: rig.store().load(("db", "events"))).code == "metadata_too_large"


def test_the_log_of_a_delta_table_in_a_bucket_is_limited(s3_server: S3Server) -> None:
    """Two requests more for each load; without users, none."""
    settings = {f"iceberg.catalog.{key}": value for key, value in s3_server.properties.items()}
    rig = DeltaRig(f"{s3_server.warehouse}/{unique_name('large')}", raw=settings)
    with limited(is_guarded=False):
        assert rig.store().load(("db", "events")).version == 0
    install(AccessPolicy(is_guarded=True, names=frozenset({"127.0.0.1"}), answer_bytes_max=100))
    try:
        assert refusal(lambda: rig.store().load(("db", "events"))).code == "metadata_too_large"
    finally:
        install(AccessPolicy())


@pytest.mark.parametrize("path", ["../secret.parquet", "a/../../secret.parquet", "/secret.parquet"])
def test_a_delta_log_names_no_file_outside_of_the_table(tmp_path: Path, path: str) -> None:
    """Copy-on-write would read it, with what the coordinator may open."""
    rig = DeltaRig(f"file://{tmp_path}")
    file = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1}
    added = json.dumps({"add": {**file, "dataChange": True}})
    (delta_log(rig) / f"{1:020}.json").write_text(added)
    version: Any = rig.store().load(("db", "events"))
    assert refusal(lambda: version.live_files(["id"])).code == "delta_unsupported"
