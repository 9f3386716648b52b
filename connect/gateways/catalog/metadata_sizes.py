"""Limits of metadata files: the owner of a table writes them, and compression may hide their size.

Rules of this file:
- A metadata file is read whole. So its size, after decompression, and the number of its values have
  the limits of an answer.
"""

from __future__ import annotations

import zlib
from io import BytesIO
from typing import Final

from pyarrow import NativeFile
from pyiceberg.io import InputStream
from pyiceberg.io.pyarrow import PyArrowFile

from connect.errors import CommitRefused
from connect.gateways.access_policy import ANSWER_BYTES_MAX, access_policy
from connect.gateways.answer_limits import BYTES_OF_VALUE, AnswerLimitError, ValueCount

_GZIP: Final = 16 + zlib.MAX_WBITS
_PIECE_BYTES: Final = 2**20


def limited_text(stream: NativeFile) -> bytes:
    """Read a whole metadata file.

    Raises:
        CommitRefused: ``metadata_too_large``.
    """
    if stream.size() > access_policy().answer_bytes_max:
        raise _too_large()
    text: bytes = stream.read()
    _count(ValueCount(access_policy().answer_bytes_max), text)
    return text


class SameFile(PyArrowFile):
    """A file that is opened in another way.

    Args:
        file: the file.
    """

    def __init__(self, file: PyArrowFile) -> None:
        super().__init__(file.location, file._path, file._filesystem)  # noqa: SLF001 - the same file


class CompressedMetadataFile(SameFile):
    """A metadata file with gzip."""

    def open(self, seekable: bool = True) -> InputStream:
        """Read the file; return its compressed content.

        Raises:
            CommitRefused: ``metadata_too_large``, after decompression.
        """
        with super().open(seekable) as stream:
            content = limited_text(stream)
        _check_decompressed(content)
        return BytesIO(content)


def _check_decompressed(content: bytes) -> None:
    """Decompress in pieces that are not kept; a broken file is left to its reader."""
    left, rest = access_policy().answer_bytes_max, content
    values = ValueCount(left)
    try:
        while rest:
            inflating = zlib.decompressobj(_GZIP)
            while rest and not inflating.eof:
                piece = inflating.decompress(rest, _PIECE_BYTES)
                left -= len(piece)
                _count(values, piece)
                rest = inflating.unconsumed_tail
                if left < 0:
                    raise _too_large()
            rest = inflating.unused_data  # another member of the file
    except zlib.error:
        return


def _count(values: ValueCount, text: bytes) -> None:
    try:
        values.add(text)
    except AnswerLimitError as error:
        raise _too_large() from error


def _too_large() -> CommitRefused:
    bytes_max = access_policy().answer_bytes_max
    return CommitRefused(
        f"the metadata file of the table has more than {bytes_max} bytes, or more than "
        f"{bytes_max // BYTES_OF_VALUE} values: expire its snapshots, or ask the node's operator "
        f"to raise {ANSWER_BYTES_MAX}",
        code="metadata_too_large",
    )
