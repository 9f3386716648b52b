"""Manifests and manifest lists are checked before PyIceberg decodes them.

PyIceberg's compiled decoder does not compare lengths and counts with what a file has. With a wrong
length it returns memory of the process, which other connectors share, or ends the process.

Rules of this file:
- The owner of a table writes its manifests. They are checked as the files of a stranger.
- Each block is checked by the tree of readers that decodes it afterwards, and no byte is left over.
- A file, a block after decompression, and what the decoded values take in memory have limits.
- Other formats of the same file are not guessed: what is not Avro as Iceberg writes it is refused.

Source:
    PyIceberg 0.12.0 ``pyiceberg.avro.file``, ``decoder_fast.pyx``; Avro 1.12 "Object Container
    Files", "Binary Encoding".
"""

from __future__ import annotations

import bz2
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Self, TypeVar

import pyiceberg.manifest as pyiceberg_manifest
import zstandard
from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.codecs.snappy_codec import SnappyCodec
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.file import MAGIC, SYNC_SIZE, AvroFile, Block
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import InputFile
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion
from pyiceberg.utils.singleton import Singleton

from connect.errors import CommitRefused
from connect.gateways.access_policy import ANSWER_BYTES_MAX, access_policy
from connect.gateways.storage.avro_structure import Check, MalformedAvroError, check_of, long_at
from control_schemas import bounded_json

D = TypeVar("D", bound=StructProtocol)

SCHEMA_BYTES_MAX: Final = 2**18
_HEADER_ENTRIES_MAX: Final = 100
_MEMORY_TIMES: Final = 4  # the values of an ordinary manifest take so much more than its bytes
_KEPT_SCHEMA_BYTES: Final = 2**14
_KEPT_FORMS: Final = 128
_SPENT_BYTES: Final = 2**20
_SCHEMA: Final = b"avro.schema"


class ReadBudget:
    """Memory that the values of some files may take together; safe to use from many threads."""

    def __init__(self) -> None:
        self._left = _MEMORY_TIMES * access_policy().answer_bytes_max
        self._lock = threading.Lock()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Count what this thread reads within."""
        token = _budget.set(self)
        try:
            yield
        finally:
            _budget.reset(token)

    def spend(self, memory_bytes: int) -> None:
        """Count values.

        Raises:
            CommitRefused: ``metadata_too_large``.
        """
        with self._lock:
            self._left -= memory_bytes
            is_over = self._left < 0
        if is_over:
            raise _too_large()


_budget: ContextVar[ReadBudget | None] = ContextVar("budget", default=None)


class _Form(NamedTuple):
    """How files of one schema are read.

    Attributes:
        read_schema: what is read of them; kept, so that its id stays its own.
        reader: decodes a record.
        check: checks a record.
    """

    read_schema: Any
    reader: Reader
    check: Check


class CheckedAvroFile(AvroFile[D]):
    """An Avro file whose bytes are checked before they are decoded."""

    def __enter__(self) -> Self:
        """Read the file and its header.

        Raises:
            CommitRefused: ``metadata_too_large``, ``manifest_invalid``.
            OSError: it cannot be read.
        """
        self._budget = _budget.get() or ReadBudget()
        self._left = access_policy().answer_bytes_max
        content = _content(self.input_file, self._left)
        try:
            meta, at = _header(content)
            self._sync = content[at - SYNC_SIZE : at]
            self._codec = meta.get(AVRO_CODEC_KEY.encode(), b"null").decode()
            self._form = _form(meta.get(_SCHEMA, b""), self)
        except _INVALID as error:
            raise _invalid(self.input_file, error) from error
        self.reader = self._form.reader
        self._content, self._at = content, at
        return self

    def __next__(self) -> D:
        """Return the next record.

        Raises:
            CommitRefused: as ``__enter__``.
        """
        try:
            while self.block is None or not self.block.has_next():
                if self._at == len(self._content):
                    raise StopIteration
                self._read_block()
            return next(self.block)
        except _INVALID as error:
            raise _invalid(self.input_file, error) from error

    def _read_block(self) -> int:
        records, at = long_at(self._content, self._at)
        size, at = long_at(self._content, at)
        end = at + size
        if min(records, size) < 0 or end + SYNC_SIZE > len(self._content):
            raise MalformedAvroError("a block is longer than the file")
        if self._content[end : end + SYNC_SIZE] != self._sync:
            raise MalformedAvroError("a block does not end with the marker of the file")
        data = decompressed(self._codec, self._content[at:end], self._left)
        self._left -= len(data)
        self._check(records, data)
        decoder: BinaryDecoder = new_decoder(data)
        self.block = Block(self.reader, records, decoder)
        self._at = end + SYNC_SIZE
        return records

    def _check(self, records: int, data: bytes) -> None:
        at, memory, spend, check = 0, [0], self._budget.spend, self._form.check
        spend(len(data))
        for _ in range(records):
            before = at
            at = check(data, at, memory)
            if at == before:
                raise MalformedAvroError("a record has no bytes")
            if memory[0] > _SPENT_BYTES:
                spend(memory[0])
                memory[0] = 0
        spend(memory[0])
        if at != len(data):
            raise MalformedAvroError("a block has other bytes than its records")


def decompressed(codec: str, data: bytes, bytes_max: int) -> bytes:
    """Decompress a block.

    Raises:
        CommitRefused: ``metadata_too_large``: it has more bytes after that.
        MalformedAvroError: it cannot be decompressed.
    """
    try:
        out = _decompressed(codec, data, bytes_max)
    except (OSError, EOFError, ValueError, zlib.error, zstandard.ZstdError) as error:
        raise MalformedAvroError(f"a block is not compressed with {codec}") from error
    if len(out) > bytes_max:
        raise _too_large()
    return out


def _decompressed(codec: str, data: bytes, bytes_max: int) -> bytes:
    if codec == "null":
        return data
    if codec == "deflate":
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, bytes_max + 1)
    if codec == "bzip2":
        return bz2.BZ2Decompressor().decompress(data, bytes_max + 1)
    if codec == "zstandard":
        out = bytearray()
        with zstandard.ZstdDecompressor().stream_reader(data) as stream:
            while len(out) <= bytes_max and (piece := stream.read(2**16)):
                out += piece
        return bytes(out)
    if codec == "snappy":
        if _snappy_size(data) > bytes_max:
            raise _too_large()
        return SnappyCodec.decompress(data)
    raise ValueError


def _snappy_size(data: bytes) -> int:
    """Return the size that is in front of the compressed bytes; the decoder adheres to it."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size
    raise ValueError


def _content(file: InputFile, bytes_max: int) -> bytes:
    with file.open() as stream:
        size = getattr(stream, "size", None)
        if size is not None and size() > bytes_max:
            raise _too_large()
        content: bytes = stream.read() if size is not None else stream.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise _too_large()
    return content


def _header(content: bytes) -> tuple[dict[bytes, bytes], int]:
    """Return what the header names, and where the first block begins."""
    if not content.startswith(MAGIC):
        raise MalformedAvroError("it is no Avro file")
    meta: dict[bytes, bytes] = {}
    at = len(MAGIC)
    for _ in range(_HEADER_ENTRIES_MAX):
        count, at = long_at(content, at)
        if count < 0:
            _, at = long_at(content, at)
        if count == 0:
            if at + SYNC_SIZE > len(content):
                break
            return meta, at + SYNC_SIZE
        if abs(count) + len(meta) > _HEADER_ENTRIES_MAX:
            break
        for _ in range(abs(count)):
            key, at = _bytes_at(content, at)
            meta[key], at = _bytes_at(content, at)
    raise MalformedAvroError("its header is too long, or ends early")


def _bytes_at(content: bytes, at: int) -> tuple[bytes, int]:
    size, at = long_at(content, at)
    if not 0 <= size <= len(content) - at:
        raise MalformedAvroError("its header is longer than the file")
    return content[at : at + size], at + size


class _Forms:
    """Forms of small schemas, which most files share."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], _Form] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, text: bytes, file: AvroFile[Any]) -> _Form:
        key = (text, id(file.read_schema), *file.read_types.items())
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return kept
            form = _made_form(text, file)
            if len(text) <= _KEPT_SCHEMA_BYTES:
                self._kept[key] = form
                while len(self._kept) > _KEPT_FORMS:
                    self._kept.popitem(last=False)
            return form


_FORMS: Final = _Forms()


def _form(text: bytes, file: AvroFile[Any]) -> _Form:
    if len(text) > SCHEMA_BYTES_MAX:
        raise _too_large()
    return _FORMS.of(text, file)


def _made_form(text: bytes, file: AvroFile[Any]) -> _Form:
    instances = Singleton._instances  # noqa: SLF001 - PyIceberg keeps each reader for ever
    before = len(instances)
    try:
        schema = AvroSchemaConversion().avro_to_iceberg(bounded_json.loads(text.decode()))
        read_schema = file.read_schema or schema
        reader = resolve_reader(schema, read_schema, file.read_types, file.read_enums)
        return _Form(read_schema, reader, check_of(reader))
    finally:
        for key in list(instances)[before:]:
            instances.pop(key, None)


_INVALID: Final = (
    MalformedAvroError,
    ResolveError,
    ValueError,  # also values that PyIceberg's classes refuse, and text that is not UTF-8
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
)


def _invalid(file: InputFile, error: Exception) -> CommitRefused:
    return CommitRefused(
        f"{file.location} is no valid manifest or manifest list: {_reason(error)}",
        code="manifest_invalid",
    )


def _reason(error: Exception) -> str:
    """Return what is wrong; texts of libraries may have parts of the file."""
    if isinstance(error, IndexError):
        return "it ends early"
    return str(error) if isinstance(error, MalformedAvroError) else type(error).__name__


def _too_large() -> CommitRefused:
    bytes_max = access_policy().answer_bytes_max
    return CommitRefused(
        f"a manifest or manifest list of the table has more than {bytes_max} bytes, or its values "
        f"take more than {_MEMORY_TIMES * bytes_max} bytes of memory: rewrite its manifests, or "
        f"ask the node's operator to raise {ANSWER_BYTES_MAX}",
        code="metadata_too_large",
    )


def _check_all_manifests() -> None:
    """Let PyIceberg's own functions read checked files, and share no entries between tables.

    PyIceberg keeps entries of manifest lists by the path of the manifest. A list can name the
    manifest of another table. Then commits to that table would take over wrong values.
    """
    vars(pyiceberg_manifest)["AvroFile"] = CheckedAvroFile
    pyiceberg_manifest._manifest_cache._cache = None  # noqa: SLF001 - its setting is of the machine


_check_all_manifests()
