"""Connectors, announcements, data files and clocks for tests of commits."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.table import Table

from connect.clock import SystemClock
from connect.config.connector import ConnectorConfig
from connect.validation.parse import parse
from control_schemas.events import (
    ContentFile,
    DataWritten,
    Event,
    EventHeaders,
    FileContent,
    PartitionField,
    TableReference,
)
from coordinator.kernel.effects import Envelope, TableCommit

_paths = itertools.count(1)


class QuickClock(SystemClock):
    """The system clock, with short waits that are recorded."""

    def __init__(self) -> None:
        self.slept_ms: list[int] = []
        self.offset_ms = 0
        self._lock = threading.Lock()

    def monotonic_ms(self) -> int:
        """Monotonic clock, advanced by the full waits."""
        return super().monotonic_ms() + sum(self.slept_ms)

    def now_ms(self) -> int:
        """Wall clock, moved by ``offset_ms``."""
        return super().now_ms() + self.offset_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Wait for at most a tenth of the time."""
        with self._lock:
            self.slept_ms.append(duration_ms)
        super().sleep_ms(min(duration_ms, 200) // 10)


def connector(name: str, tables: Iterable[str], **settings: str) -> ConnectorConfig:
    """A connector's typed configuration; settings with ``__`` for a dot and ``_`` for a dash."""
    raw = {
        "name": name,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "source",
        "iceberg.tables": ",".join(tables),
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://127.0.0.1:1",
        **{k.replace("__", ".").replace("_", "-"): v for k, v in settings.items()},
    }
    return parse(raw)


def reference(table: Table, *, with_uuid: bool = True) -> TableReference:
    """The table as events name it."""
    *namespace, name = table.name()
    uuid = table.metadata.table_uuid if with_uuid else None
    return TableReference("iceberg", tuple(namespace), name, uuid)


def announced(
    table: TableReference,
    files: Sequence[ContentFile],
    deletes: Sequence[ContentFile] = (),
    *,
    offset: int,
    partition: int = 0,
    layout: int | None = 1,
    batch: int | None = None,
    task: int | None = None,
    time_ms: int | None = None,
    commit_id: UUID | None = None,
) -> Envelope:
    """One DataWritten event as the inbox hands it on."""
    payload = DataWritten(commit_id or UUID(int=1), table, tuple(files), tuple(deletes))
    event = Event(uuid4(), 0, "connect-c", payload)
    headers = EventHeaders(layout=layout, batch=batch, task=task, time_ms=time_ms)
    return Envelope(event, headers, partition, offset)


def table_commit(
    envelopes: Sequence[Envelope],
    *,
    until: Mapping[int, int] | None = None,
    valid_through_us: int | None = None,
    commit_id: UUID | None = None,
) -> TableCommit:
    """A table's share of a round, closed just above its last announcement."""
    ends: dict[int, int] = {}
    for e in envelopes:
        ends[e.partition] = max(ends.get(e.partition, 0), e.offset + 1)
    payload = envelopes[0].event.payload
    assert isinstance(payload, DataWritten)
    return TableCommit(
        payload.table,
        commit_id or uuid4(),
        tuple(envelopes),
        dict(until or ends),
        valid_through_us,
        "c-0",
    )


def _file_name() -> str:
    """A name as a worker gives it."""
    return f"{SystemClock().new_timed_uuid()}-{next(_paths):05d}.parquet"


def made_up_file(table: Table, *, records: int = 10, columns: int = 2, **more: Any) -> ContentFile:
    """An empty file, for tests that read no rows."""
    ids = range(1, columns + 1)
    bound = (1).to_bytes(8, "little")
    values: dict[str, Any] = {
        "content": FileContent.DATA,
        "file_path": f"{table.location()}/data/{_file_name()}",
        "file_format": "PARQUET",
        "spec_id": table.metadata.default_spec_id,
        "partition": (),
        "record_count": records,
        "file_size_in_bytes": 1000,
        "column_sizes": dict.fromkeys(ids, 80),
        "value_counts": dict.fromkeys(ids, records),
        "null_value_counts": dict.fromkeys(ids, 0),
        "lower_bounds": dict.fromkeys(ids, bound),
        "upper_bounds": dict.fromkeys(ids, bound),
        "split_offsets": (4,),
    }
    file = ContentFile(**{**values, **more})
    table.io.new_output(file.file_path).create(overwrite=True).close()
    return file


def data_file_named(path: str) -> ContentFile:
    """A file that exists only by name, without metrics."""
    return ContentFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="PARQUET",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=100,
    )


def written_file(
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    *,
    partition: tuple[PartitionField, ...] = (),
    spec_id: int | None = None,
) -> ContentFile:
    """Write rows as a Parquet file of the table and describe it as a worker would."""
    schema = table.schema()
    arrow = schema_to_pyarrow(schema)
    data = pa.Table.from_pylist([dict(r) for r in rows], schema=arrow)
    path = f"{table.location()}/data/{next(_paths):08d}-{uuid4()}.parquet"
    with table.io.new_output(path).create(overwrite=True) as out:
        writer = pq.ParquetWriter(out, arrow, compression="zstd", store_schema=False)
        writer.write_table(data)
        writer.close()
    plan = compute_statistics_plan(schema, table.properties)
    statistics = data_file_statistics_from_parquet_metadata(
        writer.writer.metadata, plan, parquet_path_to_id_mapping(schema)
    ).to_serialized_dict()
    return ContentFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="PARQUET",
        spec_id=table.metadata.default_spec_id if spec_id is None else spec_id,
        partition=partition,
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(path)),
        column_sizes=statistics["column_sizes"],
        value_counts=statistics["value_counts"],
        null_value_counts=statistics["null_value_counts"],
        nan_value_counts=statistics["nan_value_counts"],
        lower_bounds=statistics["lower_bounds"],
        upper_bounds=statistics["upper_bounds"],
        split_offsets=tuple(statistics["split_offsets"]),
    )


def partition_of(
    table: Table, values: Mapping[str, Any], spec_id: int | None = None
) -> tuple[PartitionField, ...]:
    """The partition of a row, as a worker announces it.

    Args:
        table: the table.
        values: source column -> value in Iceberg's internal form (days, microseconds ...).
        spec_id: the spec; the default one when None.
    """
    metadata = table.metadata
    spec = metadata.specs()[metadata.default_spec_id if spec_id is None else spec_id]
    schema = table.schema()
    out = []
    for f, part in zip(spec.fields, spec.partition_type(schema).fields, strict=True):
        source = schema.find_field(f.source_id)
        value = f.transform.transform(source.field_type)(values[source.name])
        out.append(PartitionField(f.field_id, f.name, str(part.field_type), _on_the_wire(value)))
    return tuple(out)


def _on_the_wire(value: Any) -> Any:
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        return int("".join(map(str, digits))) * (-1 if sign else 1)
    return value.bytes if isinstance(value, UUID) else value


def equality_delete(table: Table, key: int) -> ContentFile:
    """A file that deletes the rows with an id."""
    path = f"{table.location()}/data/{next(_paths):08d}-{uuid4()}-deletes.parquet"
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    rows = pa.table([pa.array([key])], schema=pa.schema([field]))
    with table.io.new_output(path).create() as out:
        pq.write_table(rows, out, store_schema=False)
    bound = key.to_bytes(8, "little")
    return ContentFile(
        content=FileContent.EQUALITY_DELETES,
        file_path=path,
        file_format="PARQUET",
        spec_id=0,
        partition=(),
        record_count=1,
        file_size_in_bytes=len(table.io.new_input(path)),
        value_counts={1: 1},
        null_value_counts={1: 0},
        lower_bounds={1: bound},
        upper_bounds={1: bound},
        equality_ids=(1,),
    )


def metadata_files(table: Table) -> set[str]:
    """Avro files in a local table's metadata folder."""
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    return {f.name for f in folder.iterdir() if f.suffix == ".avro"}
