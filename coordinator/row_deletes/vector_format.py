"""Deletion vectors as bytes, and the Puffin files that hold them.

Rules of this file:
- A vector that is read is checked completely: length, magic number, checksum, bitmap. Rows must not
  come back because a vector was misread.

Source:
    Iceberg's Puffin specification, "deletion-vector-v1"; Roaring's portable format for 64 bits.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

_VECTOR_MAGIC: Final = bytes.fromhex("d1d33964")
_PUFFIN_MAGIC: Final = b"PFA1"
_NO_FLAGS: Final = bytes(4)
_BLOB_TYPE: Final = "deletion-vector-v1"
_POSITION_FIELD_ID: Final = 2_147_483_545
_INHERITED: Final = -1
_FRAME_BYTES: Final = 12
"""Length, magic number and checksum of a vector."""


def vector_bytes(positions: BitMap64) -> bytes:
    """Return a vector as the content of a blob."""
    positions.run_optimize()
    content = _VECTOR_MAGIC + positions.serialize()
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


def vector_of(blob: bytes) -> BitMap64:
    """Return the positions of a vector.

    Args:
        blob: the content of the blob.

    Raises:
        ValueError: it is no vector, or was changed.
    """
    if len(blob) < _FRAME_BYTES:
        raise ValueError("a deletion vector is too short")
    (length,) = struct.unpack_from(">I", blob)
    content = blob[4:-4]
    if length != len(content) or not content.startswith(_VECTOR_MAGIC):
        raise ValueError("a blob is no deletion vector")
    if struct.unpack_from(">I", blob, len(blob) - 4)[0] != zlib.crc32(content):
        raise ValueError("the checksum of a deletion vector is wrong")
    return BitMap64.deserialize(content[len(_VECTOR_MAGIC) :])


@dataclass(frozen=True, slots=True)
class PuffinFile:
    """A file with vectors.

    Attributes:
        content: of the file.
        offsets: of the vectors, in their order.
    """

    content: bytes
    offsets: tuple[int, ...]


def puffin_file(
    vectors: Sequence[tuple[str, bytes, int]], properties: Mapping[str, str]
) -> PuffinFile:
    """Return a Puffin file.

    Args:
        vectors: path of the data file, ``vector_bytes`` and number of positions of each vector.
        properties: of the file.
    """
    content = bytearray(_PUFFIN_MAGIC)
    blobs, offsets = [], []
    for path, blob, cardinality in vectors:
        offsets.append(len(content))
        blobs.append(
            {
                "type": _BLOB_TYPE,
                "fields": [_POSITION_FIELD_ID],
                "snapshot-id": _INHERITED,
                "sequence-number": _INHERITED,
                "offset": len(content),
                "length": len(blob),
                "properties": {"referenced-data-file": path, "cardinality": str(cardinality)},
            }
        )
        content += blob
    footer = json.dumps({"blobs": blobs, "properties": dict(properties)}).encode()
    content += _PUFFIN_MAGIC + footer + struct.pack("<I", len(footer)) + _NO_FLAGS + _PUFFIN_MAGIC
    return PuffinFile(bytes(content), tuple(offsets))
