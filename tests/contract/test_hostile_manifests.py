"""Manifests that the owner of a table wrote to harm the process that reads them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    read_manifest_list,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.utils.singleton import Singleton

import connect.gateways.catalog.catalog  # noqa: F401 - reads checked manifests
from connect.errors import CommitRefused
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.storage.avro_limits import CheckedAvroFile, ReadBudget, decompressed
from tests.support.hostile_manifests import (
    COMPRESSED,
    FILE_PATH,
    INVALID,
    LARGE,
    avro_file,
    block,
    long,
    manifest_at,
    record,
    schema_text,
    sized,
    some,
    with_field,
    written,
)

IO = PyArrowFileIO()
LIST_SCHEMA = MANIFEST_LIST_FILE_SCHEMAS[2]
MEMORY_MB_MAX = 300
OF_MATRIX = ("bzip2", "zstandard")  # ways to compress, like "deflate"


def read(path: Path) -> list[str]:
    """Return the data files of a manifest."""
    entries = manifest_at(str(path)).fetch_manifest_entry(IO)
    return [entry.data_file.file_path for entry in entries]


@pytest.fixture(scope="module")
def reader() -> Iterator[subprocess.Popen[str]]:
    """A process that forks one for each manifest."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.hostile_manifests"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        yield process


def reported(reader: subprocess.Popen[str], path: Path) -> tuple[str, int]:
    """Return how a process ends that reads a manifest, and the MiB that it needs for it."""
    assert reader.stdin is not None
    assert reader.stdout is not None
    print(path, file=reader.stdin, flush=True)
    report = json.loads(reader.stdout.readline())
    assert isinstance(report, list), f"it ended with status {report}"
    assert json.loads(reader.stdout.readline()) == 0
    outcome, used = report
    return outcome, used


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_manifest_is_read(codec: str, tmp_path: Path) -> None:
    """With each way to compress, several blocks, all fields, and one that is not known."""
    full = record(
        lower_bounds=some(long(1) + long(7) + sized(b"abc") + long(0)),
        value_counts=some(long(2) + long(7) + long(2**40) + long(8) + long(-1) + long(0)),
        split_offsets=some(long(1) + long(4) + long(0)),
        key_metadata=some(sized(b"key")),
    )
    unknown = sized(b"unknown")
    data = (full + unknown) * 3
    content = avro_file(*[block(3, data, codec)] * 2, codec=codec, schema=with_field("string"))
    entries = manifest_at(str(written(tmp_path, content))).fetch_manifest_entry(IO)
    assert len(entries) == 6
    file = entries[-1].data_file
    assert (file.file_path, file.lower_bounds) == (FILE_PATH.decode(), {7: b"abc"})
    assert (dict(file.value_counts), list(file.split_offsets)) == ({7: 2**40, 8: 2**64 - 1}, [4])


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_manifest_is_refused(case: str, tmp_path: Path) -> None:
    """No memory of the process is returned, and the process does not end."""
    path = written(tmp_path, INVALID[case]())
    with pytest.raises(CommitRefused) as refused:
        read(path)
    assert refused.value.code == "manifest_invalid"
    assert str(path) in refused.value.message


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.matrix if case in OF_MATRIX else ()) for case in LARGE],
)
def test_a_large_manifest_takes_bounded_memory(
    reader: subprocess.Popen[str], case: str, tmp_path: Path
) -> None:
    """It is refused before its values fill the memory."""
    path = written(tmp_path, LARGE[case]())
    assert path.stat().st_size < 2**24
    outcome, used = reported(reader, path)
    assert outcome == "metadata_too_large"
    assert used < MEMORY_MB_MAX


def test_changed_bytes_never_end_the_process(tmp_path: Path) -> None:
    """Random changes of a manifest: it is read, or it is refused."""
    data = record(
        lower_bounds=some(long(2) + (long(7) + sized(b"abc")) * 2 + long(0)),
        value_counts=some(long(2) + (long(7) + long(300)) * 2 + long(0)),
        split_offsets=some(long(1) + long(4) + long(0)),
    )
    whole = avro_file(block(5, data * 5))
    chance = random.Random(11)
    outcomes = set()
    for _ in range(2_000):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            content[chance.randrange(len(whole) // 2, len(whole))] = chance.randrange(256)
        try:
            outcomes.add(str(len(read(written(tmp_path, bytes(content))))))
        except CommitRefused as error:
            outcomes.add(error.code)
    assert {"5", "manifest_invalid"} <= outcomes


def test_a_list_of_another_table_changes_nothing(tmp_path: Path) -> None:
    """Two lists name one manifest: the values of each are those of its own list."""

    def listed(content: int, name: str) -> Path:
        values = {
            "manifest_path": sized(b"s3://lake/db/theirs/m.avro"),
            "content": long(content),
        }
        path = tmp_path / name
        schema = schema_text(LIST_SCHEMA, "manifest_file")
        path.write_bytes(avro_file(block(1, record(LIST_SCHEMA, **values)), schema=schema))
        return path

    lists = [listed(1, "hostile.avro"), listed(0, "theirs.avro")]
    contents = []
    for path in lists:
        snapshot = Snapshot(**{"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": str(path)})
        contents.append(snapshot.manifests(IO)[0].content)
    assert contents == [ManifestContent.DELETES, ManifestContent.DATA]


def test_several_manifests_share_a_budget(tmp_path: Path) -> None:
    """Each of them is small enough."""
    path = written(tmp_path, avro_file(block(1_000, record() * 1_000)))
    install(AccessPolicy(answer_bytes_max=2**20))
    try:
        budget = ReadBudget()
        with budget.applied():
            assert len(read(path)) == 1_000
            assert len(read(path)) == 1_000
            with pytest.raises(CommitRefused) as refused:
                [read(path) for _ in range(20)]
        assert len(read(path)) == 1_000
    finally:
        install(AccessPolicy())
    assert refused.value.code == "metadata_too_large"


def test_schemas_of_files_are_not_kept(tmp_path: Path) -> None:
    """PyIceberg would keep the readers of each for ever."""
    kept = len(Singleton._instances)
    for each in range(20):
        schema = schema_text()
        types = {"type": "fixed", "name": "f", "size": each + 100}
        schema["fields"].append({"name": "x", "type": types, "field-id": 999})
        path = written(tmp_path, avro_file(block(1, record() + bytes(each + 100)), schema=schema))
        assert read(path) == [FILE_PATH.decode()]
    assert len(Singleton._instances) <= kept + 10


def test_snappy_says_its_size_first() -> None:
    """So it is refused before it is decompressed."""
    claim = b"\xff\xff\xff\xff\x0f" + bytes(20)
    with pytest.raises(CommitRefused) as refused:
        decompressed("snappy", claim, 2**20)
    assert refused.value.code == "metadata_too_large"


def test_every_reader_of_manifests_is_checked() -> None:
    """Also PyIceberg's own functions."""
    import pyiceberg.manifest

    assert pyiceberg.manifest.AvroFile is CheckedAvroFile
    assert read_manifest_list.__globals__["AvroFile"] is CheckedAvroFile
