"""The results that Spark tasks send to the driver: Arrow rows with a kind and a payload.

Rules of this file:
- Payloads are JSON with bytes as base64, parsed field by field. Nothing is unpickled.
- The files of a Spark task travel together and compressed: their metrics are alike, and with many
  tables and columns they would exceed what Spark accepts from all tasks.
- The files of a result with an error or with requests must not be announced: the caller deletes
  them.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect.errors import ConfigError, InvariantViolation, RecordError, RetriableError
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.events import ContentFile, FileContent, PartitionField, RowCounts
from worker.batch.error_rows import error_from, error_json, failure_of
from worker.batch.messages import MessageChunk

DESCRIPTOR_DDL: Final = "kind string, payload binary"
DESCRIPTOR_SCHEMA: Final = pa.schema([("kind", pa.string()), ("payload", pa.binary())])

_ZSTD: Final = pa.Codec("zstd", 1)
_LENGTH_BYTES: Final = 8
_FILES_AT_ONCE: Final = 5_000
_DEAD_LETTER_BYTES: Final = 1_000  # coordinates, the error, and overhead of Python objects
_DEAD_LETTER_BATCH_BYTES: Final = 32 * 2**20
_ID_MAPS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_PLAIN: Final = tuple(
    f.name
    for f in dataclasses.fields(ContentFile)
    if f.name not in (*_ID_MAPS, *_BOUNDS, "content", "partition", "key_metadata")
)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Counts of the records of one source partition, by outcome.

    ``read`` is the sum of dropped, dead-lettered and written records. ``bytes_read`` counts the
    bytes of their keys and values, if these were read. ``future`` counts records with a timestamp
    too far ahead of the clock; ``timestamp_max_ms`` ignores them. ``late`` counts records with a
    timestamp at or below the last VTTS that the task received. ``alone`` counts the records that
    took the record path, by reason.
    """

    read: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    written: int = 0
    timestamp_max_ms: int | None = None
    bytes_read: int = field(default=0, compare=False)  # not an outcome: for the size of reads
    future: int = 0
    late: int = 0
    alone: Mapping[str, int] = field(default_factory=dict, compare=False)  # not an outcome either

    def plus(self, other: PartitionProgress) -> PartitionProgress:
        """Return the sums of both."""
        stamps = [t for t in (self.timestamp_max_ms, other.timestamp_max_ms) if t is not None]
        return PartitionProgress(
            self.read + other.read,
            self.dropped + other.dropped,
            self.dead_lettered + other.dead_lettered,
            self.written + other.written,
            max(stamps, default=None),
            self.bytes_read + other.bytes_read,
            self.future + other.future,
            self.late + other.late,
            dict(Counter(self.alone) + Counter(other.alone)),
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be processed, with all of its bytes, and its error."""

    record: KafkaRecord
    error: RecordError

    @property
    def size(self) -> int:
        """Its approximate size in memory, in bytes."""
        record = self.record
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        return _DEAD_LETTER_BYTES + len(record.key or b"") + len(record.value or b"") + headers


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A table that a batch needs and the driver does not know.

    Attributes:
        table: the name that routing returned.
        schema_json: Iceberg schema that ``connect.records.tables`` infers from the first record.
            None if auto-create is off: the driver loads the table, and adds a missing one to
            ``PipelineSpec.absent``.
        spec_json: partition spec of the table to create.
        sort_json: sort order of the table to create.
        location: location of the table to create; None lets the catalog choose.
        properties: properties of the table to create.
    """

    table: str
    schema_json: str | None = None
    spec_json: str | None = None
    sort_json: str | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """Changes of a table's schema that a batch needs.

    Attributes:
        table: the name that routing returned.
        schema_id: the schema on which the changes are based.
        changes: ``SchemaChanges.to_json`` of the records that need them; the driver merges them.
    """

    table: str
    schema_id: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The results of all Spark tasks of one batch.

    Attributes:
        steps: per step, in order, the files by table name; at most one step without row-level
            changes.
        progress: counts of records per source partition.
        dead_letters: refused records, with tolerance ``all``.
        table_requests: tables to load or create before the batch runs again.
        schema_requests: schema changes to apply before the batch runs again.
        error: with tolerance ``none``, the first refused record of the batch; or an error that
            concerns all records, such as a schema registry that does not answer.
        losses: number of values that lost digits beyond microseconds.
        unavailable: by table and column, written values that their source did not send.
        conflicts: by table, column and column that took them, values that moved.
        rows: counts of the rows that the records produced.
        messages: rows for outputs, in the order of the Spark tasks.
        is_whole: whether the rows that Spark tasks passed on are those that other tasks received.
        shares_keys: whether two Spark tasks have changed a row: the newest change is not known.
    """

    steps: tuple[Mapping[str, tuple[ContentFile, ...]], ...] = ()
    progress: Mapping[TopicPartition, PartitionProgress] = field(default_factory=dict)
    dead_letters: tuple[DeadLetter, ...] = ()
    table_requests: tuple[TableRequest, ...] = ()
    schema_requests: tuple[SchemaRequest, ...] = ()
    error: RecordError | RetriableError | ConfigError | None = None
    losses: int = 0
    unavailable: Mapping[tuple[str, str], int] = field(default_factory=dict)
    conflicts: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    rows: RowCounts = field(default_factory=RowCounts)
    messages: tuple[MessageChunk, ...] = ()
    is_whole: bool = True
    shares_keys: bool = False

    @property
    def files(self) -> dict[str, tuple[ContentFile, ...]]:
        """All files by table name."""
        out: dict[str, tuple[ContentFile, ...]] = {}
        for step in self.steps:
            for name, files in step.items():
                out[name] = (*out.get(name, ()), *files)
        return out

    @property
    def is_usable(self) -> bool:
        """Whether the files may be announced; otherwise they must be deleted."""
        return self.error is None and not self.table_requests and not self.schema_requests


# ------------------------------------------------------------------ to rows


def file_rows(files: Iterable[tuple[str, ContentFile, int]]) -> Iterator[tuple[str, bytes]]:
    """Return rows of written files.

    Args:
        files: the table of each file, the file, and its step of row-level changes.
    """
    items = [[table, step, _file_json(file)] for table, file, step in files]
    for start in range(0, len(items), _FILES_AT_ONCE):
        payload = _dump(items[start : start + _FILES_AT_ONCE])
        packed = _ZSTD.compress(payload, asbytes=True)
        yield "files", len(payload).to_bytes(_LENGTH_BYTES) + packed


def progress_row(tp: TopicPartition, progress: PartitionProgress) -> tuple[str, bytes]:
    """Return the row of the counts of one source partition."""
    return "progress", _dump([tp.topic, tp.partition, *dataclasses.astuple(progress)])


def dead_letter_row(dead_letter: DeadLetter) -> tuple[str, bytes]:
    """Return the row of a refused record."""
    r = dead_letter.record
    record = [r.topic, r.partition, r.offset, r.timestamp_ms, r.timestamp_type]
    raw = [_b64(r.key), _b64(r.value), [[name, _b64(value)] for name, value in r.headers]]
    return "dead_letter", _dump([record, raw, error_json(dead_letter.error)])


def table_request_row(request: TableRequest) -> tuple[str, bytes]:
    """Return the row of a table that the spec does not contain."""
    return "table_request", _dump(dataclasses.asdict(request))


def schema_request_row(request: SchemaRequest) -> tuple[str, bytes]:
    """Return the row of schema changes that a table needs."""
    return "schema_request", _dump(dataclasses.asdict(request))


def losses_row(count: int) -> tuple[str, bytes]:
    """Return the row with the number of values that lost digits beyond microseconds."""
    return "losses", _dump(count)


def unavailable_row(table: str, columns: Mapping[str, int]) -> tuple[str, bytes]:
    """Return the row with the number of values by column that their source did not send."""
    return "unavailable", _dump([table, dict(columns)])


def conflicts_row(columns: Mapping[tuple[str, str, str], int]) -> tuple[str, bytes]:
    """Return the row with the number of values that moved, by table, column and their column."""
    return "conflicts", _dump([[*place, count] for place, count in columns.items()])


def rows_row(rows: RowCounts) -> tuple[str, bytes]:
    """Return the row with the counts of rows that records produced."""
    return "rows", _dump(dataclasses.astuple(rows))


def sent_row(sender: str, rows: int) -> tuple[str, bytes]:
    """Return the row with the number of rows that an attempt of a Spark task passed on."""
    return "sent", _dump([sender, rows])


def received_row(rows: Mapping[str, int]) -> tuple[str, bytes]:
    """Return the row with the number of rows that a Spark task received of each attempt."""
    return "received", _dump([*rows.items()])


def keys_row(table: str, hashes: npt.NDArray[np.uint64]) -> tuple[str, bytes]:
    """Return the row with the keys of a table that a Spark task has changed, as sorted hashes."""
    name = table.encode()
    return "keys", len(name).to_bytes(_LENGTH_BYTES) + name + hashes.astype("<u8").tobytes()


def messages_row(chunk: MessageChunk) -> tuple[str, bytes]:
    """Return the row of rows for outputs."""
    numbers = (chunk.count, chunk.size, chunk.largest)
    return "messages", b"".join(n.to_bytes(_LENGTH_BYTES) for n in numbers) + chunk.payload


def to_batch(rows: Iterable[tuple[str, bytes]]) -> pa.RecordBatch:
    """Return rows as a record batch of ``DESCRIPTOR_DDL``."""
    listed = list(rows)
    return pa.record_batch(
        [
            pa.array([kind for kind, _ in listed], pa.string()),
            pa.array([payload for _, payload in listed], pa.binary()),
        ],
        schema=DESCRIPTOR_SCHEMA,
    )


def dead_letter_batches(dead_letters: list[DeadLetter]) -> Iterator[pa.RecordBatch]:
    """Yield dead letters as rows, in bounded batches; remove each from the list to free memory."""
    dead_letters.reverse()
    while dead_letters:
        rows, size = [], 0
        while dead_letters and size < _DEAD_LETTER_BATCH_BYTES:
            rows.append(dead_letter_row(dead_letters.pop()))
            size += len(rows[-1][1])
        yield to_batch(rows)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()


def _b64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _file_json(file: ContentFile) -> list[Any]:
    bounds = [getattr(file, name) for name in _BOUNDS]
    return [
        [getattr(file, name) for name in _PLAIN],
        [None if ids is None else [*zip(*ids.items(), strict=True)] for ids in _id_maps(file)],
        [None if b is None else [[*b], [*map(len, b.values())], _joined(b)] for b in bounds],
        int(file.content),
        _b64(file.key_metadata),
        [
            [f.field_id, f.name, f.type, isinstance(f.value, bytes), _partition_json(f.value)]
            for f in file.partition
        ],
    ]


def _id_maps(file: ContentFile) -> list[Mapping[int, int] | None]:
    return [getattr(file, name) for name in _ID_MAPS]


def _joined(bounds: Mapping[int, bytes]) -> str | None:
    return _b64(b"".join(bounds.values()))


def _partition_json(value: Any) -> Any:
    return _b64(value) if isinstance(value, bytes) else value


# ------------------------------------------------------------------ from rows


def collect(rows: pa.Table) -> BatchResult:
    """Merge the results of all Spark tasks of a batch.

    Args:
        rows: ``DESCRIPTOR_DDL`` rows in any order, e.g. ``df.mapInArrow(..).toArrow()``.

    Returns:
        The result. Files are sorted by path, so equal rows give an equal result.

    Raises:
        InvariantViolation: the kind of a row is unknown.
    """
    by_kind: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    dead_letters: list[DeadLetter] = []
    messages: list[MessageChunk] = []
    keys: dict[bytes, list[npt.NDArray[np.uint64]]] = {}
    for kind, payload in zip(rows["kind"].to_pylist(), rows["payload"], strict=True):
        if kind == "dead_letter":  # dead letters may be large, so only one at a time is decoded
            dead_letters.append(_dead_letter_from(json.loads(payload.as_py())))
        elif kind == "files":
            by_kind[kind].extend(_unpacked(payload.as_buffer()))
        elif kind == "messages":
            messages.append(_messages_from(payload.as_py()))
        elif kind == "keys":
            table, hashes = _keys_from(payload.as_buffer())
            keys.setdefault(table, []).append(hashes)
        elif kind in by_kind:
            by_kind[kind].append(json.loads(payload.as_py()))
        else:
            raise InvariantViolation(f"descriptor of unknown kind {kind!r}")
    steps: dict[int, dict[str, list[ContentFile]]] = {}
    for table, step, file in by_kind["files"]:
        steps.setdefault(step, {}).setdefault(table, []).append(_file_from(file))
    progress: dict[TopicPartition, PartitionProgress] = {}
    for topic, partition, *counts in by_kind["progress"]:
        tp = TopicPartition(topic, partition)
        progress[tp] = progress.get(tp, PartitionProgress()).plus(PartitionProgress(*counts))
    dead_letters.sort(key=lambda d: (d.record.topic, d.record.partition, d.record.offset))
    errors = sorted(map(error_from, by_kind["error"]), key=_position)
    return BatchResult(
        steps=tuple(
            {
                name: tuple(sorted(listed, key=lambda f: f.file_path))
                for name, listed in sorted(files.items())
            }
            for _, files in sorted(steps.items())
        ),
        progress=progress,
        dead_letters=tuple(dead_letters),
        table_requests=_table_requests(by_kind["table_request"]),
        schema_requests=_schema_requests(by_kind["schema_request"]),
        error=_failure_from(by_kind["failure"]) or (errors[0] if errors else None),
        losses=sum(by_kind["losses"]),
        unavailable=_unavailable(by_kind["unavailable"]),
        conflicts=_conflicts(chain(*by_kind["conflicts"])),
        rows=reduce(RowCounts.plus, (RowCounts(*item) for item in by_kind["rows"]), RowCounts()),
        messages=tuple(messages),
        is_whole=_counts(by_kind["sent"]) == _counts(chain(*by_kind["received"])),
        shares_keys=any(map(_has_shared, keys.values())),
    )


def _unavailable(items: Iterable[tuple[str, Mapping[str, int]]]) -> Counter[tuple[str, str]]:
    out: Counter[tuple[str, str]] = Counter()
    for table, columns in items:
        out.update({(table, column): count for column, count in columns.items()})
    return out


def _conflicts(items: Iterable[tuple[str, str, str, int]]) -> Counter[tuple[str, str, str]]:
    out: Counter[tuple[str, str, str]] = Counter()
    for table, column, target, count in items:
        out[table, column, target] += count
    return out


def _has_shared(changed: Sequence[npt.NDArray[np.uint64]]) -> bool:
    """Return whether two Spark tasks have a key; each gives distinct hashes, in their order."""
    joined = np.concatenate(changed)
    joined.sort(kind="stable")  # merges what is sorted
    return bool((joined[1:] == joined[:-1]).any())


def _keys_from(payload: pa.Buffer) -> tuple[bytes, npt.NDArray[np.uint64]]:
    length = int.from_bytes(payload[:_LENGTH_BYTES].to_pybytes())
    end = _LENGTH_BYTES + length
    name = payload[_LENGTH_BYTES:end].to_pybytes()
    return name, np.frombuffer(payload[end:].to_pybytes(), "<u8")


def _counts(items: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the rows of each attempt of a Spark task that passed rows on."""
    counts: dict[str, int] = {}
    for sender, rows in items:
        counts[sender] = counts.get(sender, 0) + rows
    return {sender: rows for sender, rows in counts.items() if rows}


_KINDS: Final = (
    "files",
    "progress",
    "error",
    "failure",
    "table_request",
    "schema_request",
    "losses",
    "unavailable",
    "conflicts",
    "rows",
    "sent",
    "received",
)


def _table_requests(items: list[dict[str, Any]]) -> tuple[TableRequest, ...]:
    by_name: dict[str, TableRequest] = {}
    for item in items:
        asked = TableRequest(**item)
        if by_name.setdefault(asked.table, asked).schema_json is None:
            by_name[asked.table] = asked  # a tombstone only asks to load the table
    return tuple(by_name.values())


def _schema_requests(items: list[dict[str, Any]]) -> tuple[SchemaRequest, ...]:
    merged: dict[tuple[str, int], list[str]] = {}
    for item in items:
        changes = merged.setdefault((item["table"], item["schema_id"]), [])
        changes.extend(change for change in item["changes"] if change not in changes)
    return tuple(SchemaRequest(*key, tuple(changes)) for key, changes in merged.items())


def _position(error: RecordError) -> tuple[Any, ...]:
    at = error.coordinates
    return at.get("topic", ""), at.get("partition", -1), at.get("offset", -1)


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _failure_from(items: list[Any]) -> RetriableError | ConfigError | None:
    """Return the first failure; an error of the configuration comes before a retriable one."""
    for item in sorted(items, key=lambda item: str(item[0])):
        return failure_of(*item)
    return None


def _dead_letter_from(item: list[Any]) -> DeadLetter:
    (topic, partition, offset, timestamp_ms, timestamp_type), (key, value, headers), error = item
    record = KafkaRecord(
        topic,
        partition,
        offset,
        timestamp_ms,
        timestamp_type,
        _bytes(key),
        _bytes(value),
        tuple((name, _bytes(raw)) for name, raw in headers),
    )
    return DeadLetter(record, error_from(error))


def _messages_from(payload: bytes) -> MessageChunk:
    numbers = (payload[n * _LENGTH_BYTES : (n + 1) * _LENGTH_BYTES] for n in range(3))
    count, size, largest = map(int.from_bytes, numbers)
    return MessageChunk(payload[3 * _LENGTH_BYTES :], count, size, largest)


def _unpacked(payload: pa.Buffer) -> list[Any]:
    length = int.from_bytes(payload[:_LENGTH_BYTES].to_pybytes())
    listed: list[Any] = json.loads(_ZSTD.decompress(payload[_LENGTH_BYTES:], length, asbytes=True))
    return listed


def _file_from(item: list[Any]) -> ContentFile:
    plain, id_maps, bounds, content, key_metadata, partition = item
    values: dict[str, Any] = dict(zip(_PLAIN, plain, strict=True))
    for name in ("split_offsets", "equality_ids"):
        values[name] = None if values[name] is None else tuple(values[name])
    for name, ids in zip(_ID_MAPS, id_maps, strict=True):
        values[name] = None if ids is None else dict(zip(*ids, strict=True)) if ids else {}
    for name, packed in zip(_BOUNDS, bounds, strict=True):
        values[name] = None if packed is None else _bounds_from(*packed)
    return ContentFile(
        **values,
        content=FileContent(content),
        key_metadata=_bytes(key_metadata),
        partition=tuple(
            PartitionField(field_id, name, kind, _bytes(value) if is_bytes else value)
            for field_id, name, kind, is_bytes, value in partition
        ),
    )


def _bounds_from(ids: list[int], lengths: list[int], text: str) -> dict[int, bytes]:
    joined = base64.b64decode(text)
    ends = [*accumulate(lengths)]
    return {
        field_id: joined[end - length : end]
        for field_id, length, end in zip(ids, lengths, ends, strict=True)
    }
