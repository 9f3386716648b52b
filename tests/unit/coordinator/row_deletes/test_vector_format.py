"""Deletion vectors and Puffin files as bytes, as the specification has them."""

from __future__ import annotations

import io
import json
import struct
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

from coordinator.row_deletes.deleted_keys import IN_TABLE, DeletedKeys
from coordinator.row_deletes.parquet_rows import (
    KeyColumns,
    RowFilter,
    deleted_positions,
    open_parquet,
)
from coordinator.row_deletes.row_positions import bitmap
from coordinator.row_deletes.vector_format import puffin_file, vector_bytes, vector_of


def test_a_vector_has_the_bytes_of_the_specification() -> None:
    """Length and checksum are big-endian; magic number and bitmap are little-endian."""
    content = bytes.fromhex(
        "d1d33964"  # magic number
        "0100000000000000"  # one bitmap of 32 bits
        "00000000"  # its upper 32 bits
        "3a30000001000000"  # no runs; one container
        "00000100"  # its upper 16 bits; its cardinality less one
        "10000000"  # where it starts
        "03000900"  # the values
    )
    wanted = struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))
    assert vector_bytes(BitMap64([3, 9])) == wanted


def test_runs_are_stored_as_runs() -> None:
    """As Java does before it writes."""
    assert len(vector_bytes(BitMap64(range(100_000)))) < 80


POSITIONS = st.sets(
    st.one_of(st.integers(0, 70_000), st.integers(2**32 - 3, 2**32 + 3), st.integers(0, 2**40)),
    min_size=1,
)


@given(POSITIONS, POSITIONS)
def test_what_is_written_is_read(first: set[int], second: set[int]) -> None:
    """By our reader and by PyIceberg's, from a file with several vectors."""
    blobs = [vector_bytes(BitMap64(each)) for each in (first, second)]
    assert [set(vector_of(blob)) for blob in blobs] == [first, second]
    paths = ["s3://a/1.parquet", "s3://a/ü 2.parquet"]
    cardinalities = [len(first), len(second)]
    vectors = list(zip(paths, blobs, cardinalities, strict=True))
    puffin = puffin_file(vectors, {"created-by": "test"})
    for at, blob in zip(puffin.offsets, blobs, strict=True):
        assert puffin.content[at : at + len(blob)] == blob
    read = PuffinFile(puffin.content)
    for blob, cardinality in zip(read.footer.blobs, cardinalities, strict=True):
        assert (blob.type, blob.fields) == ("deletion-vector-v1", [2147483545])
        assert (blob.snapshot_id, blob.sequence_number) == (-1, -1)
        assert blob.compression_codec is None
        assert blob.properties["cardinality"] == str(cardinality)
    if max(first | second) < 2**32:  # PyIceberg 0.12 reads no larger ones after a gap
        found = {
            v.referenced_data_file: set(v.to_vector().to_pylist())
            for v in deletion_vectors_from_puffin_file(read)
        }
        assert found == dict(zip(paths, (first, second), strict=True))


def test_the_footer_of_a_puffin_file() -> None:
    """Its payload is uncompressed JSON; its size is little-endian."""
    content = puffin_file([("a", b"blob", 1)], {"created-by": "test"}).content
    assert (content[:8], content[-4:], content[-8:-4]) == (b"PFA1blob", b"PFA1", bytes(4))
    (size,) = struct.unpack("<I", content[-12:-8])
    assert content[8:12] == b"PFA1"
    assert len(content) == 12 + size + 12
    footer = json.loads(content[12 : 12 + size])
    assert footer["properties"] == {"created-by": "test"}
    assert (footer["blobs"][0]["offset"], footer["blobs"][0]["length"]) == (4, 4)


@given(st.data())
def test_a_changed_vector_is_not_read(data: st.DataObject) -> None:
    """Any bit counts."""
    blob = bytearray(vector_bytes(BitMap64([1, 5, 70_000])))
    at = data.draw(st.integers(0, len(blob) * 8 - 1))
    blob[at // 8] ^= 1 << at % 8
    with pytest.raises(ValueError, match="deletion vector"):
        vector_of(bytes(blob))


@pytest.mark.parametrize("length", [0, 4, 11, 20])
def test_a_part_of_a_vector_is_not_read(length: int) -> None:
    """A store may return less than was asked for."""
    with pytest.raises(ValueError, match="deletion vector"):
        vector_of(vector_bytes(BitMap64([1, 5, 70_000]))[:length])


def test_positions_count_over_row_groups() -> None:
    """A row's position is its place in the file."""
    sink = io.BytesIO()
    keys = [n % 7 for n in range(100)]
    pq.write_table(pa.table({"id": pa.array(keys, pa.int64())}), sink, row_group_size=13)
    deleted = DeletedKeys([(0, [pa.array([3, 5], pa.int64())])])
    columns = KeyColumns((1,), (pa.int64(),))
    rows = RowFilter([(columns, deleted)], IN_TABLE, lambda _: {1: "id"}, {})
    file = open_parquet(pa.BufferReader(sink.getvalue()))
    found = BitMap64()
    for part in deleted_positions(file, rows, lambda: None):
        found |= bitmap(part)
    assert list(found) == [n for n, key in enumerate(keys) if key in (3, 5)]
