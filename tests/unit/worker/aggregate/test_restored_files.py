"""Files of a state that another writer of its store made: what Spark would load or create."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from connect.errors import ConfigError
from worker.aggregate.restored_files import PROVIDER, check_restored

SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": PROVIDER,
    "spark.sql.streaming.stateStore.compression.codec": "lz4",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion": "5",
    "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
}
SST = {
    "localFileName": "000008.sst",
    "dfsSstFileName": "000008-1ff63ddf-61f8-4692-b967-04bd4400d284.sst",
    "sizeBytes": 27476,
}
METADATA = {"sstFiles": [SST], "numKeys": 2000, "columnFamilyMapping": {}}
SNAPSHOT = "state/0/0/2.zip"


def log_file(local: Path, name: str = "offsets/1", **settings: Any) -> str:
    """Write a file of the log of offsets as Spark 4.1 does, with more settings."""
    head = {"batchWatermarkMs": 5, "batchTimestampMs": 7, "conf": {**SETTINGS, **settings}}
    file = local / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'v1\n{json.dumps(head)}\n{{"t":{{"0":5}}}}')
    return name


def snapshot(local: Path, metadata: Any, **entries: bytes) -> Path:
    """Write a snapshot as Spark 4.1 does, with more entries."""
    file = local / SNAPSHOT
    file.parent.mkdir(parents=True, exist_ok=True)
    text = metadata if isinstance(metadata, str) else f"v1\n{json.dumps(metadata)}"
    parts = {"CURRENT": b"MANIFEST-000005\n", "000004.log": b"", "OPTIONS-000007": b"x" * 7614}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in {**parts, **entries, "metadata": text.encode()}.items():
            target.writestr(name, content)
    return file


def refused(local: Path, path: str) -> ConfigError:
    """Check a file that is refused."""
    with pytest.raises(ConfigError) as error:
        check_restored(local, path, 1)
    assert error.value.code == "aggregate_state_invalid"
    assert path in error.value.message
    return error.value


def test_files_of_a_run_stay_as_they_are(tmp_path: Path) -> None:
    """Their content is the same; a snapshot is compressed again."""
    path = log_file(tmp_path)
    before = (tmp_path / path).read_text()
    assert not check_restored(tmp_path, path, 1)
    assert (tmp_path / path).read_text() == before
    file = snapshot(tmp_path, METADATA)
    with zipfile.ZipFile(file) as read:
        contents = {name: read.read(name) for name in read.namelist()}
    assert check_restored(tmp_path, SNAPSHOT, 1)
    with zipfile.ZipFile(file) as read:
        assert {name: read.read(name) for name in read.namelist()} == contents
    assert [each.name for each in file.parent.iterdir()] == ["2.zip"]


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.streaming.stateStore.providerClass": "java.util.Date"},
        {"spark.sql.streaming.stateStore.compression.codec": "org.example.Codec"},
        {"spark.sql.shuffle.partitions": 5},
    ],
)
def test_no_class_is_named_by_the_log_of_offsets(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    """Spark sets them in the session of the query, and makes an instance of the class."""
    refused(tmp_path, log_file(tmp_path, **settings))


@pytest.mark.parametrize("name", ["offsets/2", "offsets/01", "offsets/+1", "offsets/x/1"])
def test_the_log_has_the_batches_of_the_state_only(tmp_path: Path, name: str) -> None:
    """Spark takes the settings of the newest one."""
    refused(tmp_path, log_file(tmp_path, name))


@pytest.mark.parametrize(
    "name", ["../../../outside.sst", "/outside.sst", "a/b.log", "..\\outside.sst", "x.jar", ""]
)
@pytest.mark.parametrize("key", ["localFileName", "dfsSstFileName"])
@pytest.mark.parametrize("kind", ["sstFiles", "logFiles"])
def test_a_snapshot_names_no_file_of_another_folder(
    tmp_path: Path, kind: str, key: str, name: str
) -> None:
    """Spark would create the local one, and delete the other one."""
    snapshot(tmp_path, {**METADATA, kind: [{**SST, key: name}]})
    refused(tmp_path, SNAPSHOT)


@pytest.mark.parametrize("metadata", ["v1\n[]", "v1", 'v1\n{"sstFiles": [[]]}', "v1\n" + "[" * 200])
def test_the_metadata_of_a_snapshot_is_an_object(tmp_path: Path, metadata: str) -> None:
    """Any other one is not of a run."""
    snapshot(tmp_path, metadata)
    refused(tmp_path, SNAPSHOT)


def test_an_entry_that_is_not_listed_is_not_left(tmp_path: Path) -> None:
    """Spark reads from the start of a file, so it would use metadata that no list has."""
    hostile = {**METADATA, "sstFiles": [{**SST, "localFileName": "../../outside.sst"}]}
    first = snapshot(tmp_path, hostile).read_bytes()
    second = snapshot(tmp_path, METADATA)
    second.write_bytes(first + second.read_bytes())
    assert check_restored(tmp_path, SNAPSHOT, 1)
    assert second.read_bytes().count(b"metadata") == 2  # the entry, and its place in the list
    with zipfile.ZipFile(second) as read:
        assert b"outside" not in read.read("metadata")


def test_an_entry_has_a_plain_name(tmp_path: Path) -> None:
    """No name of an entry is a path."""
    snapshot(tmp_path, METADATA, **{"../outside": b"x"})
    refused(tmp_path, SNAPSHOT)


def test_a_snapshot_has_a_limit_of_size(tmp_path: Path) -> None:
    """After decompression, while it is written."""
    snapshot(tmp_path, METADATA, OPTIONS=b"\0" * 200_000)
    with pytest.raises(ConfigError) as error:
        check_restored(tmp_path, SNAPSHOT, 1, 100_000)
    assert error.value.code == "aggregate_state_invalid"
    assert sum(file.stat().st_size for file in (tmp_path / "state/0/0").iterdir()) < 2_000


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06", b"x" * 100])
def test_a_snapshot_is_a_zip_file(tmp_path: Path, content: bytes) -> None:
    """Any other file is refused."""
    file = tmp_path / SNAPSHOT
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    refused(tmp_path, SNAPSHOT)


def test_other_files_are_not_changed(tmp_path: Path) -> None:
    """Spark reads no names from them."""
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/1").write_text("v1\n{}")
    assert not check_restored(tmp_path, "commits/1", 1)
