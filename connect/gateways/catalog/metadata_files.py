"""Metadata files that are read without the history of the table, and written with it.

For catalogs whose client reads and writes the metadata file itself.

Rules of this file:
- The history is the snapshots and the log of snapshots. A commit that only adds to them copies
  their text from one file to the next. No object is made of them.
- **Metadata without history is never written as it is.** What is to be written carries the text
  of the history, in any way of writing it. A commit that needs more than the text raises
  ``HistoryNeeded`` before anything is written.
- A metadata file is never changed. So where the history is in a file has to be found once, by
  parsing the file. It is known of files that this client wrote: then only the rest is read.
- Only the last files of a table are remembered. A commit makes the one before it useless, unless
  the commit fails.
- A file of another size, or without the brackets where they were, is parsed again.

Source:
    Iceberg's table spec, "Table Metadata Fields"; PyIceberg 0.12.0 ``TableMetadata``.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeAlias

from pyarrow import NativeFile
from pydantic import PrivateAttr
from pydantic_core import from_json
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.typedef import UTF8, IcebergBaseModel
from pyiceberg.utils.config import Config

from connect.gateways.catalog.metadata_sizes import CompressedMetadataFile, SameFile, limited_text
from connect.gateways.storage.guarded_io import GuardedFileIO

_MAIN = "main"
_EMPTY = b'"snapshots":[],"snapshot-log":[]'
_BETWEEN = b'],"snapshot-log":['
_SNAPSHOTS = re.compile(r'"snapshots"\s*:\s*(?=\[)')
_LOG = re.compile(r'"snapshot-log"\s*:\s*(?=\[)')
_DECODER = json.JSONDecoder()
_MARK = "history"
_METADATA = ".metadata.json"
_COMPRESSED = ".gz.metadata.json"
_KNOWN_TABLES_MAX = 4_096
_KNOWN_FILES_MAX = 3
_KNOWN_BYTES_MAX = 64 * 1024
_LOCAL = ("file:", "/")
_COPY_BYTES = {True: 1024 * 1024, False: 16 * 1024 * 1024}  # a piece is a request to a store
_TEXT_BYTES_MAX = 256 * 1024
_ADDING = (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    SetPropertiesUpdate,
    RemovePropertiesUpdate,
)


class HistoryNeeded(Exception):  # noqa: N818 - no error: the table is read again
    """The metadata without the history is not enough."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of a file."""

    file: InputFile
    file_bytes: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def pieces(self, stream: NativeFile, buffer: memoryview) -> Iterator[memoryview]:
        """Read this part into the buffer, again and again."""
        stream.seek(self.start)
        left = len(self)
        while left:
            size = stream.readinto(buffer[:left])
            if not size:
                raise OSError(f"{self.file.location} ends early")
            left -= size
            yield buffer[:size]

    def open(self) -> NativeFile:
        """Open the file.

        Raises:
            OSError: it is not the file that was read.
        """
        stream = self.file.open()
        if not isinstance(stream, NativeFile) or stream.size() != self.file_bytes:
            raise OSError(f"{self.file.location} has changed since it was read")
        return stream


Part: TypeAlias = bytes | memoryview | _Span


@dataclass(frozen=True, slots=True)
class HistoryText:
    """Where the history of a metadata file is.

    Attributes:
        file_bytes: of the file.
        start: of the first snapshot.
        between: text behind the last snapshot, before the first entry of the log.
        between_at: where that starts.
        end: behind the last entry of the log.
        named: text of the snapshots that branches and tags name, by id, in the file's order.
        last_entry: text of the last entry of the log.
    """

    file_bytes: int
    start: int
    between: bytes
    between_at: int
    end: int
    named: Mapping[int, bytes]
    last_entry: bytes

    @property
    def memory_bytes(self) -> int:
        """About what it takes to remember this."""
        return sum(map(len, self.named.values())) + len(self.between) + len(self.last_entry)

    @property
    def short(self) -> bytes:
        """What replaces the history."""
        return b",".join(self.named.values()) + self.between + self.last_entry

    def read_around(self, open_file: Callable[[], NativeFile]) -> bytes | None:
        """Read what is around the history, and what replaces it; None if the file is another."""
        with open_file() as stream:
            if stream.size() != self.file_bytes:
                return None
            head = stream.read(self.start)
            stream.seek(self.end)
            tail = stream.read()
        is_same = head.endswith(b"[") and tail.startswith(b"]")
        return head + self.short + tail if is_same else None

    def is_in(self, text: bytes) -> bool:
        """Whether this may be the file."""
        return (
            len(text) == self.file_bytes
            and text[self.start - 1 : self.start] == b"["
            and text.startswith(self.between, self.between_at)
            and text[self.end : self.end + 1] == b"]"
        )

    def copied(
        self, file: InputFile, text: bytes | None
    ) -> tuple[memoryview | _Span, memoryview | _Span]:
        """Return the snapshots and the log, to be copied from a text or a file."""
        log_at = self.between_at + len(self.between)
        if text is not None:
            view = memoryview(text)
            return view[self.start : self.between_at], view[log_at : self.end]
        spans = (self.start, self.between_at), (log_at, self.end)
        snapshots, log = (_Span(file, self.file_bytes, *span) for span in spans)
        return snapshots, log


def find_history(text: bytes) -> HistoryText | None:
    """Find the history in a metadata file, by parsing it; None where its form is another."""
    try:
        return _found(text, text.decode(UTF8))
    except (ValueError, RecursionError):
        return None


def _found(text: bytes, plain: str) -> HistoryText | None:
    start, between_at, snapshots = _span(plain, _SNAPSHOTS)
    log_start, end, log = _span(plain, _LOG)
    if not start <= between_at < log_start <= end:
        return None
    if (not snapshots and start < between_at) or (not log and log_start < end):
        return None  # only spaces: nothing can follow them
    around = plain[: start - 1], plain[between_at + 1 : log_start - 1], plain[end + 1 :]
    named = _named(f'"{_MARK}"'.join(around), snapshots)
    if named is None or not all(isinstance(entry, dict) for entry in log):
        return None

    def position(at: int) -> int:
        return at if len(plain) == len(text) else len(plain[:at].encode(UTF8))

    return HistoryText(
        file_bytes=len(text),
        start=position(start),
        between=plain[between_at:log_start].encode(UTF8),
        between_at=position(between_at),
        end=position(end),
        named=named,
        last_entry=_text(log[-1]) if log else b"",
    )


def _span(text: str, key: re.Pattern[str]) -> tuple[int, int, list[Any]]:
    """Return where the elements of the last list with this name start and end, and the list.

    Raises:
        ValueError: there is none.
    """
    *_, at = (-1, *(match.end() for match in key.finditer(text)))
    if at < 0:
        raise ValueError
    elements, end = _DECODER.raw_decode(text, at)
    return at + 1, end - 1, elements


def _named(around: str, snapshots: Sequence[Any]) -> dict[int, bytes] | None:
    """Return the snapshots that branches and tags name.

    Args:
        around: the file, with a mark in place of both lists: so it is known that they are parts of
            the metadata, and not of something in it.
        snapshots: of the file.
    """
    rest = from_json(around)
    if not isinstance(rest, dict) or rest.get("format-version") not in (2, 3):
        return None
    if not rest.get("snapshots") == rest.get("snapshot-log") == _MARK:
        return None
    refs = rest.get("refs") or {}
    try:
        ids = {ref["snapshot-id"] for ref in refs.values()}
        if _MAIN not in refs:
            ids.add(rest.get("current-snapshot-id"))
        named = [each for each in snapshots if each["snapshot-id"] in ids]
        return {each["snapshot-id"]: _text(each) for each in named}
    except (AttributeError, KeyError, TypeError):
        return None


def _text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(UTF8)


def adds_only(updates: Sequence[TableUpdate]) -> bool:
    """Whether a change only adds to the history, and needs nothing of it.

    A snapshot that is in the history already would be an error. Its sequence number excludes
    that: a commit is refused unless it is above that of all snapshots that were ever added.
    """
    added = [u.snapshot for u in updates if isinstance(u, AddSnapshotUpdate)]
    moved = {u.snapshot_id for u in updates if isinstance(u, SetSnapshotRefUpdate)}
    return (
        bool(added)
        and all(each.sequence_number for each in added)
        and moved <= {each.snapshot_id for each in added}
        and all(isinstance(u, _ADDING) for u in updates)
    )


class WithHistoryText(IcebergBaseModel):
    """Metadata to be written, whose snapshots are few, with the text of all of them."""

    _parts: tuple[Part, ...] = PrivateAttr(default=())

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Read the pieces of the file that is to be written; each is valid until the next."""
        with contextlib.ExitStack() as opened:
            source: tuple[NativeFile, memoryview] | None = None
            for part in self._parts:
                if not isinstance(part, _Span):
                    yield part
                    continue
                if source is None:
                    is_local = part.file.location.startswith(_LOCAL)
                    buffer = memoryview(bytearray(_COPY_BYTES[is_local]))
                    source = opened.enter_context(part.open()), buffer
                yield from part.pieces(*source)

    @property
    def file_bytes(self) -> int:
        """Of the file that is to be written."""
        return sum(map(len, self._parts))

    def model_dump_json(self, *_: Any, **__: Any) -> str:
        """Return the whole text, for any other writer."""
        return b"".join(map(bytes, self.pieces())).decode(UTF8)


class _CarryingV2(WithHistoryText, TableMetadataV2):
    pass


class _CarryingV3(WithHistoryText, TableMetadataV3):
    pass


class _Read:
    """The file that a thread read last.

    Attributes:
        location: of the file.
        history: None where it was not left out.
        text: None where it is not kept.
    """

    def __init__(self, location: str, history: HistoryText | None, text: bytes | None) -> None:
        self.location = location
        self.history = history
        self.text = text


class MetadataFiles:
    """Reads the metadata files of one client; safe to use from many threads.

    Attributes:
        text_bytes_max: of a file whose text is kept until the thread commits.
        known_max: number of tables whose last files are remembered.
    """

    def __init__(self) -> None:
        self.text_bytes_max = _TEXT_BYTES_MAX
        self.known_max = _KNOWN_TABLES_MAX
        self._known: OrderedDict[str, dict[str, HistoryText]] = OrderedDict()
        self._lock = threading.Lock()
        self._thread = threading.local()
        self._writes_nulls = Config().get_bool("legacy-current-snapshot-id")

    @property
    def leaves_out(self) -> bool:
        """Whether this thread reads metadata files without their history now."""
        return bool(getattr(self._thread, "leaves_out", False))

    @contextlib.contextmanager
    def without_history(self) -> Iterator[None]:
        """Leave the history out of what this thread reads in this block."""
        self._thread.leaves_out = True
        try:
            yield
        finally:
            self._thread.leaves_out = False

    def file_io(self, io: FileIO) -> FileIO:
        """Return a client that opens metadata files by ``read``."""
        return _MetadataFileIO(io.properties, self) if isinstance(io, GuardedFileIO) else io

    def forget_text(self) -> None:
        """Keep no text of the file that this thread read last."""
        self._thread.last = None

    def read(self, location: str, open_file: Callable[[], NativeFile]) -> bytes:
        """Read a metadata file, without its history if this thread leaves that out.

        The history stays where its form is not known. The text of a short file is kept until
        the thread commits or reads another one.
        """
        last = self._last
        text = last.text if last is not None and last.location == location else None
        if not self.leaves_out:
            text = text or _whole(open_file)
            self._thread.last = _Read(location, None, self._kept(text))
            return text
        with self._lock:
            known = self._known.get(_folder(location), {}).get(location)
        short = None
        if text is None and known is not None and known.file_bytes > self.text_bytes_max:
            short = known.read_around(open_file)
        if short is not None:
            self._thread.last = _Read(location, known, None)
            return short
        text = text or _whole(open_file)
        if known is None or not known.is_in(text):
            known = find_history(text)
        self._thread.last = _Read(location, known, self._kept(text))
        if known is None:
            return text
        self._remember(location, known)
        return text[: known.start] + known.short + text[known.end :]

    def with_history(self, before: Table, after: TableMetadata, location: str) -> TableMetadata:
        """Return metadata that was read without its history, to be written with it.

        Args:
            before: as it was read within ``without_history``.
            after: with the change, which ``adds_only``.
            location: where it is to be written.

        Raises:
            HistoryNeeded: it was read with its history, or its text has another form.
        """
        read = self._last
        if read is None or read.location != before.metadata_location or self._writes_nulls:
            raise HistoryNeeded
        known = read.history
        if known is None:
            raise HistoryNeeded
        added = after.snapshots[len(before.metadata.snapshots) :]
        entries = after.snapshot_log[len(before.metadata.snapshot_log) :]
        carrying, written = _continued(
            after,
            known,
            known.copied(before.io.new_input(read.location), read.text),
            {each.snapshot_id: each.model_dump_json().encode(UTF8) for each in added},
            [each.model_dump_json().encode(UTF8) for each in entries],
        )
        self._remember(location, written)
        return carrying

    @property
    def _last(self) -> _Read | None:
        return getattr(self._thread, "last", None)

    def _kept(self, text: bytes) -> bytes | None:
        return text if len(text) <= self.text_bytes_max else None

    def _remember(self, location: str, history: HistoryText) -> None:
        if history.memory_bytes > _KNOWN_BYTES_MAX:
            return
        folder = _folder(location)
        with self._lock:
            of_table = self._known.setdefault(folder, {})
            of_table.pop(location, None)
            of_table[location] = history
            while len(of_table) > _KNOWN_FILES_MAX:
                del of_table[next(iter(of_table))]
            self._known.move_to_end(folder)
            while len(self._known) > self.known_max:
                self._known.popitem(last=False)


class _MetadataFileIO(GuardedFileIO):
    """Opens metadata files as ``MetadataFiles`` reads them."""

    def __init__(self, properties: Any, files: MetadataFiles) -> None:
        super().__init__(properties)
        self._files = files

    def new_input(self, location: str) -> PyArrowFile:
        """Open a file to read."""
        file = super().new_input(location)
        if location.endswith(_COMPRESSED):
            return CompressedMetadataFile(file)
        return _MetadataFile(file, self._files) if location.endswith(_METADATA) else file


class _MetadataFile(SameFile):
    """A metadata file as ``MetadataFiles`` reads it."""

    def __init__(self, file: PyArrowFile, files: MetadataFiles) -> None:
        self._files = files
        super().__init__(file)

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002 - the base's
        """Read the file, and return what is left of it."""
        return BytesIO(self._files.read(self.location, super().open))


def _folder(location: str) -> str:
    """Return the folder of a table's metadata files."""
    return location.rpartition("/")[0]


def _whole(open_file: Callable[[], NativeFile]) -> bytes:
    with open_file() as stream:
        return limited_text(stream)


def _continued(
    metadata: TableMetadata,
    known: HistoryText,
    old: tuple[memoryview | _Span, memoryview | _Span],
    snapshots: Mapping[int, bytes],
    entries: Sequence[bytes],
) -> tuple[TableMetadata, HistoryText]:
    """Return metadata with the parts of its file, and where the history is in them.

    Args:
        metadata: of the table after the commit.
        known: where the history is in the file before.
        old: the snapshots and the log of that file.
        snapshots: texts of new snapshots, by id.
        entries: texts of new entries of the log.
    """
    empty = metadata.model_copy(update={"snapshots": [], "snapshot_log": []})
    # PyIceberg's own method of version 3 raises NotImplementedError
    rest = IcebergBaseModel.model_dump_json(empty).encode(UTF8)
    head, *tails = rest.split(_EMPTY)
    if len(tails) != 1:
        raise HistoryNeeded
    old_snapshots, old_log = old
    before, behind = head + b'"snapshots":[', b"]" + tails[0]
    new_snapshots = _following(old_snapshots, list(snapshots.values()))
    new_entries = _following(old_log, entries)
    parts = (before, old_snapshots, new_snapshots, _BETWEEN, old_log, new_entries, behind)
    between_at = len(before) + len(old_snapshots) + len(new_snapshots)
    ids = {ref.snapshot_id for ref in metadata.refs.values()}
    named = {key: text for key, text in {**known.named, **snapshots}.items() if key in ids}
    is_v3 = isinstance(metadata, TableMetadataV3)
    carrying = (_CarryingV3 if is_v3 else _CarryingV2).model_construct(**dict(metadata))
    carrying._parts = parts  # noqa: SLF001 - same module
    return carrying, HistoryText(
        file_bytes=sum(map(len, parts)),
        start=len(before),
        between=_BETWEEN,
        between_at=between_at,
        end=between_at + len(_BETWEEN) + len(old_log) + len(new_entries),
        named=named,
        last_entry=entries[-1] if entries else known.last_entry,
    )


def _following(old: memoryview | _Span, new: Sequence[bytes]) -> bytes:
    """Return new elements of a list, as they follow its old ones."""
    text = b",".join(new)
    return b"," + text if text and len(old) else text
