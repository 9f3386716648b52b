"""What Spark tasks send back to the driver: Arrow rows of a kind and a payload.

Rules of this file:
- Payloads are JSON with bytes as base64, read back field by field; nothing is ever unpickled.
- A result with an error or with requests describes files that must not be announced: the caller
  deletes them.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from connect.errors import ConfigError, InvariantViolation, RecordError, RetriableError
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from control_schemas.events import ContentFile, FileContent, PartitionField, RowCounts
from worker.batch.error_rows import error_from, error_json, failure_of

DESCRIPTOR_DDL: Final = "kind string, payload binary"
DESCRIPTOR_SCHEMA: Final = pa.schema([("kind", pa.string()), ("payload", pa.binary())])

_LETTER_BYTES: Final = 1_000  # coordinates, the error, and what Python adds
_LETTERS_BYTES: Final = 32 * 2**20
_ID_MAPS: Final = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_PLAIN: Final = tuple(
    f.name
    for f in dataclasses.fields(ContentFile)
    if f.name not in (*_ID_MAPS, *_BOUNDS, "content", "partition", "key_metadata")
)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """What became of the records of one source partition.

    ``read`` is the sum of dropped, dead-lettered and written ones; ``bytes_read`` are those of
    their keys and values, as far as these were needed. ``future`` counts records whose timestamp is
    too far ahead of the clock to be believed; ``timestamp_max_ms`` leaves them out. ``late`` counts
    records whose timestamp is at or below the valid-through time that the task has seen.
    """

    read: int = 0
    dropped: int = 0
    dead_lettered: int = 0
    written: int = 0
    timestamp_max_ms: int | None = None
    bytes_read: int = field(default=0, compare=False)  # of no outcome, for the size of reads
    future: int = 0
    late: int = 0

    def plus(self, other: PartitionProgress) -> PartitionProgress:
        """Both together."""
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
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be handled, byte for byte, and why."""

    record: KafkaRecord
    error: RecordError

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        record = self.record
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        return _LETTER_BYTES + len(record.key or b"") + len(record.value or b"") + headers


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A table without which the batch cannot be written.

    Attributes:
        table: the name routing gave.
        schema_json: Iceberg schema that ``connect.records.tables`` makes of the first record for
            it; None when auto-create is off (look the table up; when it is missing, name it in
            ``PipelineSpec.absent``).
        spec_json: partition spec of the table to create.
        sort_json: its sort order.
        location: where it shall lie; None lets the catalog choose.
        properties: of the table to create.
    """

    table: str
    schema_json: str | None = None
    spec_json: str | None = None
    sort_json: str | None = None
    location: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """Changes of a table's schema without which the batch cannot be written.

    Attributes:
        table: the name routing gave.
        schema_id: the schema the changes are based on.
        changes: ``SchemaChanges.to_json`` of records that asked, to be merged and applied.
    """

    table: str
    schema_id: int
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchResult:
    """Everything the tasks of one batch reported.

    Attributes:
        steps: per step, in order, the files of each table by its name; one step at most without
            row-level changes.
        progress: per source partition what became of its records.
        dead_letters: records refused, with tolerance ``all``.
        table_requests: tables to look up or create before the batch is run again.
        schema_requests: schema changes to apply before the batch is run again.
        error: with tolerance ``none``, the first refused record of the batch; or what keeps every
            record from being read, such as a schema registry that does not answer.
        losses: values that lost digits beyond microseconds.
        rows: what became of the rows that the records made.
    """

    steps: tuple[Mapping[str, tuple[ContentFile, ...]], ...] = ()
    progress: Mapping[TopicPartition, PartitionProgress] = field(default_factory=dict)
    dead_letters: tuple[DeadLetter, ...] = ()
    table_requests: tuple[TableRequest, ...] = ()
    schema_requests: tuple[SchemaRequest, ...] = ()
    error: RecordError | RetriableError | ConfigError | None = None
    losses: int = 0
    rows: RowCounts = field(default_factory=RowCounts)

    @property
    def files(self) -> dict[str, tuple[ContentFile, ...]]:
        """Per table name all files written."""
        out: dict[str, tuple[ContentFile, ...]] = {}
        for step in self.steps:
            for name, files in step.items():
                out[name] = (*out.get(name, ()), *files)
        return out

    @property
    def is_usable(self) -> bool:
        """Whether the files may be announced; else they must be deleted."""
        return self.error is None and not self.table_requests and not self.schema_requests


# ------------------------------------------------------------------ to rows


def file_row(table: str, file: ContentFile, step: int = 0) -> tuple[str, bytes]:
    """A written file, and the step of row-level changes that it belongs to."""
    return "file", _dump({"table": table, "step": step, "file": _file_json(file)})


def progress_row(tp: TopicPartition, progress: PartitionProgress) -> tuple[str, bytes]:
    """Counts of one source partition."""
    return "progress", _dump([tp.topic, tp.partition, *dataclasses.astuple(progress)])


def dead_letter_row(letter: DeadLetter) -> tuple[str, bytes]:
    """A refused record."""
    r = letter.record
    record = [r.topic, r.partition, r.offset, r.timestamp_ms, r.timestamp_type]
    raw = [_b64(r.key), _b64(r.value), [[name, _b64(value)] for name, value in r.headers]]
    return "dead_letter", _dump([record, raw, error_json(letter.error)])


def table_request_row(request: TableRequest) -> tuple[str, bytes]:
    """A table that is not in the plan."""
    return "table_request", _dump(dataclasses.asdict(request))


def schema_request_row(request: SchemaRequest) -> tuple[str, bytes]:
    """Columns a table lacks."""
    return "schema_request", _dump(dataclasses.asdict(request))


def losses_row(count: int) -> tuple[str, bytes]:
    """Values that lost digits beyond microseconds."""
    return "losses", _dump(count)


def rows_row(rows: RowCounts) -> tuple[str, bytes]:
    """What became of the rows that records made."""
    return "rows", _dump(dataclasses.astuple(rows))


def to_batch(rows: Iterable[tuple[str, bytes]]) -> pa.RecordBatch:
    """Rows as ``DESCRIPTOR_DDL`` declares them."""
    listed = list(rows)
    return pa.record_batch(
        [
            pa.array([kind for kind, _ in listed], pa.string()),
            pa.array([payload for _, payload in listed], pa.binary()),
        ],
        schema=DESCRIPTOR_SCHEMA,
    )


def letter_batches(letters: list[DeadLetter]) -> Iterator[pa.RecordBatch]:
    """Dead letters as rows, some at a time; each is taken off the list when its row is made."""
    letters.reverse()
    while letters:
        rows, size = [], 0
        while letters and size < _LETTERS_BYTES:
            rows.append(dead_letter_row(letters.pop()))
            size += len(rows[-1][1])
        yield to_batch(rows)


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode()


def _b64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _file_json(file: ContentFile) -> dict[str, Any]:
    out: dict[str, Any] = {name: getattr(file, name) for name in _PLAIN}
    out |= {name: getattr(file, name) for name in _ID_MAPS}
    for name in _BOUNDS:
        bounds = getattr(file, name)
        out[name] = None if bounds is None else {k: _b64(v) for k, v in bounds.items()}
    out["content"] = int(file.content)
    out["key_metadata"] = _b64(file.key_metadata)
    out["partition"] = [
        [f.field_id, f.name, f.type, isinstance(f.value, bytes), _partition_json(f.value)]
        for f in file.partition
    ]
    return out


def _partition_json(value: Any) -> Any:
    return _b64(value) if isinstance(value, bytes) else value


# ------------------------------------------------------------------ from rows


def collect(rows: pa.Table) -> BatchResult:
    """Put together what all tasks of a batch sent.

    Args:
        rows: ``DESCRIPTOR_DDL`` rows in any order, e.g. ``df.mapInArrow(..).toArrow()``.

    Returns:
        Files per table in path order, so that equal rows give an equal result.

    Raises:
        InvariantViolation: a row of a kind nobody sends.
    """
    found: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    letters: list[DeadLetter] = []
    for kind, payload in zip(rows["kind"].to_pylist(), rows["payload"], strict=True):
        if kind == "dead_letter":  # they may be large: one at a time
            letters.append(_letter_from(json.loads(payload.as_py())))
        elif kind in found:
            found[kind].append(json.loads(payload.as_py()))
        else:
            raise InvariantViolation(f"descriptor of unknown kind {kind!r}")
    steps: dict[int, dict[str, list[ContentFile]]] = {}
    for item in found["file"]:
        files = steps.setdefault(item["step"], {})
        files.setdefault(item["table"], []).append(_file_from(item["file"]))
    progress: dict[TopicPartition, PartitionProgress] = {}
    for topic, partition, *counts in found["progress"]:
        tp = TopicPartition(topic, partition)
        progress[tp] = progress.get(tp, PartitionProgress()).plus(PartitionProgress(*counts))
    letters.sort(key=lambda d: (d.record.topic, d.record.partition, d.record.offset))
    errors = sorted(map(error_from, found["error"]), key=_position)
    return BatchResult(
        steps=tuple(
            {
                name: tuple(sorted(listed, key=lambda f: f.file_path))
                for name, listed in sorted(files.items())
            }
            for _, files in sorted(steps.items())
        ),
        progress=progress,
        dead_letters=tuple(letters),
        table_requests=_table_requests(found["table_request"]),
        schema_requests=_schema_requests(found["schema_request"]),
        error=_failure_from(found["failure"]) or (errors[0] if errors else None),
        losses=sum(found["losses"]),
        rows=reduce(RowCounts.plus, (RowCounts(*item) for item in found["rows"]), RowCounts()),
    )


_KINDS: Final = (
    "file",
    "progress",
    "error",
    "failure",
    "table_request",
    "schema_request",
    "losses",
    "rows",
)


def _table_requests(items: list[dict[str, Any]]) -> tuple[TableRequest, ...]:
    by_name: dict[str, TableRequest] = {}
    for item in items:
        by_name.setdefault(item["table"], TableRequest(**item))
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
    """What an operator must mend, else what may pass."""
    for item in sorted(items, key=lambda item: str(item[0])):
        return failure_of(*item)
    return None


def _letter_from(item: list[Any]) -> DeadLetter:
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


def _file_from(item: dict[str, Any]) -> ContentFile:
    values: dict[str, Any] = {name: item[name] for name in _PLAIN}
    for name in ("split_offsets", "equality_ids"):
        values[name] = None if item[name] is None else tuple(item[name])
    for name in _ID_MAPS:
        values[name] = None if item[name] is None else {int(k): v for k, v in item[name].items()}
    for name in _BOUNDS:
        raw = item[name]
        values[name] = None if raw is None else {int(k): _bytes(v) for k, v in raw.items()}
    values["content"] = FileContent(item["content"])
    values["key_metadata"] = _bytes(item["key_metadata"])
    values["partition"] = tuple(
        PartitionField(field_id, name, kind, _bytes(value) if is_bytes else value)
        for field_id, name, kind, is_bytes, value in item["partition"]
    )
    return ContentFile(**values)
