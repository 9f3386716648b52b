"""Manifests and manifest lists have the bytes that PyIceberg writes, and are written at once."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DEFAULT_READ_VERSION,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from coordinator.commit.metadata.avro_files import (
    MemoryEncoder,
    PreparedAvroFile,
    _entry_schema,
    entry_form,
)

PARTITION = StructType(
    NestedField(1000, "text", StringType(), required=False),
    NestedField(1001, "day", DateType(), required=False),
    NestedField(1002, "price", DecimalType(9, 2), required=False),
    NestedField(1003, "id", UUIDType(), required=False),
    NestedField(1004, "flag", BooleanType(), required=False),
    NestedField(1005, "part", DoubleType(), required=False),
    NestedField(1006, "raw", BinaryType(), required=False),
    NestedField(1007, "number", LongType(), required=False),
)
VALUES = ("é", 20_000, Decimal("12.30"), UUID(int=7), True, 0.5, b"\x00\xff", -(2**62))


class Stream:
    """Collects what is written."""

    content = b""

    def write(self, content: bytes) -> int:
        """Take bytes."""
        self.content += content
        return len(content)


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300), st.text(max_size=40))
def test_the_encoder_has_pyicebergs_bytes(number: int, raw: bytes, text: str) -> None:
    """Numbers of every size, bytes and texts."""
    stream, memory = Stream(), MemoryEncoder()
    theirs: BinaryEncoder = BinaryEncoder(stream)  # type: ignore[arg-type]
    for encoder in (theirs, memory):
        encoder.write_int(number)
        encoder.write_bytes(raw)
        encoder.write_utf8(text)
        encoder.write_boolean(number > 0)
        encoder.write_double(float(len(raw)))
    assert bytes(memory.content) == stream.content


def entry(number: int) -> ManifestEntry:
    """An entry with every kind of statistics; each second one has no partition value."""
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"s3://b/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*(VALUES if number % 2 else [None] * len(VALUES))),
        record_count=number,
        file_size_in_bytes=10**number,
        column_sizes={1: 10, 2: 300},
        value_counts={1: 1},
        null_value_counts={},
        nan_value_counts=None,
        lower_bounds={1: b"\x01"},
        upper_bounds={1: b"\xff" * 20},
        key_metadata=b"k",
        split_offsets=[4, 1000],
        equality_ids=[1, 2],
        sort_order_id=0,
    )
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=None,
        sequence_number=number,
        file_sequence_number=None,
        data_file=file,
    )


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_a_file_has_pyicebergs_bytes(codec: str, tmp_path: Path) -> None:
    """Header, several blocks, each codec; the size is known without the store."""
    io, entries = PyArrowFileIO(), [entry(number) for number in range(1, 8)]
    path = f"file://{tmp_path}/m.avro"
    metadata = {"avro.codec": codec, "schema": "é", "content": "data"}
    with PreparedAvroFile[ManifestEntry](
        io.new_output(path), entry_form(PARTITION, 2), metadata
    ) as own:
        own.write_block(entries[:3])
        own.write_block(entries[3:])
        assert not (tmp_path / "m.avro").exists()
    file = AvroOutputFile[ManifestEntry](
        io.new_output(f"file://{tmp_path}/theirs.avro"),
        _entry_schema(2, PARTITION),
        "manifest_entry",
        _entry_schema(DEFAULT_READ_VERSION, PARTITION),
        metadata,
    )
    file.sync_bytes = own.sync_bytes
    with file as theirs:
        theirs.write_block(entries[:3])
        theirs.write_block(entries[3:])
    content = (tmp_path / "m.avro").read_bytes()
    assert content == (tmp_path / "theirs.avro").read_bytes()
    assert own.tell() == len(content)


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    """Not even an empty one."""
    path = f"file://{tmp_path}/m.avro"
    file = PreparedAvroFile[ManifestEntry](
        PyArrowFileIO().new_output(path), entry_form(PARTITION, 2), {"avro.codec": "null"}
    )
    with pytest.raises(TypeError), file:
        file.write_block([entry(1), None])  # type: ignore[list-item]
    assert list(tmp_path.iterdir()) == []
