"""Reads log and tables with separate clients, in the form that the checkers take."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from connect.model.layout import TopicPartition
from control_schemas.events import SourceRange
from control_schemas.headers import decode_headers
from tests.faults.checkers import (
    Log,
    ObservedFile,
    ObservedRange,
    ObservedSnapshot,
    ObservedTable,
    Rows,
)
from tests.faults.payments_producer import destinations

OFFSETS_PREFIX = "kafka.connect.offsets."
COMMIT_ID = "kafka.connect.commit-id"
VALID_THROUGH = "kafka.connect.valid-through-ts"
READ_TIMEOUT_S = 60.0
POLL_S = 0.2
_COLUMNS = ("partition", "sequence")
_PARTITION = b'{"partition":'
_SEQUENCE = b'"sequence":'
Ends: TypeAlias = dict[TopicPartition, int]


class ObservedAnnouncement(NamedTuple):
    """Time and layout of an announcement, and the partitions of its records."""

    at_ms: int
    layout: int
    places: tuple[TopicPartition, ...]


Taken = TypeVar("Taken")


def read_log(bootstrap_servers: str, topics: Iterable[str]) -> tuple[Log, Ends]:
    """Return every record of the topics, and the ends of their partitions."""
    found, ends = _read(bootstrap_servers, topics, _identity)
    records = np.array(found, dtype=np.int64).reshape(-1, 3)
    partitions, sequences, timestamps_ms = records[:, 0], records[:, 1], records[:, 2]
    tables = np.zeros(len(records), np.int64)
    for number in np.unique(partitions).tolist():
        chosen = partitions == number
        tables[chosen] = destinations(number, sequences[chosen])
    return Log(partitions, sequences, timestamps_ms, tables), ends


def join_logs(logs: Sequence[Log]) -> Log:
    """Return the records of several logs as one log."""
    return Log(
        *(
            np.concatenate([np.zeros(0, np.int64), *(getattr(log, name) for log in logs)])
            for name in Log.__slots__
        )
    )


def read_dead_letters(bootstrap_servers: str, topic: str) -> Rows:
    """Return which records are dead letters."""
    records, _ = _read(bootstrap_servers, [topic], _identity)
    dead_letters = np.array(records, dtype=np.int64).reshape(-1, 3)
    return Rows(dead_letters[:, 0], dead_letters[:, 1], np.zeros(len(dead_letters), np.int64))


def read_ranges(
    bootstrap_servers: str, control_topic: str
) -> tuple[dict[TopicPartition, list[ObservedRange]], bytes]:
    """Return the announced source ranges in their order, and the bytes of all events."""

    def ranges(message: Message) -> tuple[bytes, tuple[SourceRange, ...]]:
        return message.value(), decode_headers(message.headers()).ranges or ()

    records, _ = _read(bootstrap_servers, [control_topic], ranges)
    out: dict[TopicPartition, list[ObservedRange]] = {}
    for r in (r for _, reported in records for r in reported):
        seen = ObservedRange(
            r.start_offset,
            r.end_offset,
            r.records_read,
            r.records_dropped,
            r.records_dead_lettered,
            r.records_written,
        )
        out.setdefault(TopicPartition(r.topic, r.partition), []).append(seen)
    return out, b"\n".join(value for value, _ in records)


def read_announced(bootstrap_servers: str, control_topic: str) -> list[ObservedAnnouncement]:
    """Return time, layout and partitions of all announcements with records, in order."""

    def announced(message: Message) -> ObservedAnnouncement:
        headers = decode_headers(message.headers())
        places = (
            TopicPartition(r.topic, r.partition) for r in headers.ranges or () if r.records_read
        )
        return ObservedAnnouncement(message.timestamp()[1], headers.layout or 0, tuple(places))

    records, _ = _read(bootstrap_servers, [control_topic], announced)
    return [seen for seen in records if seen.places]


def _identity(message: Message) -> tuple[int, int, int]:
    """Return partition, number in it and timestamp of a payment, also of a truncated one."""
    value = message.value()
    start = value.index(_SEQUENCE) + len(_SEQUENCE)
    partition = int(value[len(_PARTITION) : start - len(_SEQUENCE) - 1])
    return partition, int(value[start : value.index(b",", start)]), message.timestamp()[1]


def _read(
    bootstrap_servers: str, topics: Iterable[str], take: Callable[[Message], Taken]
) -> tuple[list[Taken], Ends]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "icefloe-faults-log",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 65536,
            "log_level": 0,
        }
    )
    try:
        listed = consumer.list_topics(timeout=READ_TIMEOUT_S).topics
        parts = [TopicPartition(topic, p) for topic in topics for p in listed[topic].partitions]
        marks = {tp: _watermarks(consumer, tp) for tp in parts}
        consumer.assign([ClientPartition(*tp, start) for tp, (start, _) in marks.items()])
        ends = {tp: end for tp, (_, end) in marks.items()}
        return list(_consume(consumer, ends, take)), ends
    finally:
        consumer.close()


def _watermarks(consumer: Consumer, tp: TopicPartition) -> tuple[int, int]:
    """Return the first offset of a partition, and the end.

    The client's cache may lack a topic for a moment after the answer that lists it.
    """
    deadline_s = time.monotonic() + READ_TIMEOUT_S
    while True:
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(
                ClientPartition(*tp), timeout=READ_TIMEOUT_S
            )
        except KafkaException as error:
            is_known = error.args[0].code() != KafkaError._UNKNOWN_PARTITION
            if is_known or time.monotonic() > deadline_s:
                raise
            consumer.list_topics(tp.topic, timeout=READ_TIMEOUT_S)
        else:
            return found


def _consume(consumer: Consumer, ends: Ends, take: Callable[[Message], Taken]) -> Iterator[Taken]:
    left = {tp for tp, end in ends.items() if end}
    moved_s = time.monotonic()
    while left:
        messages = consumer.consume(10_000, POLL_S)  # returns after so many messages, or this time
        moved_s = time.monotonic() if messages else moved_s
        is_late = time.monotonic() - moved_s > READ_TIMEOUT_S
        assert not is_late, f"nothing more was read, partitions end at {ends}"
        for message in messages:
            tp = TopicPartition(message.topic(), message.partition())
            if message.error() is None:
                yield take(message)
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            # the last entry may be a transaction marker: then only the end-of-file event ends it
            if message.error() is not None or message.offset() + 1 >= ends[tp]:
                left.discard(tp)


def read_tables(
    catalog_name: str, properties: Mapping[str, str], names: Sequence[str], *, rows: bool = True
) -> list[ObservedTable]:
    """Read tables with PyIceberg, with or without rows; a missing table is empty."""
    catalog = load_catalog(catalog_name, **properties)
    try:
        return [_read_table(catalog, name, rows=rows) for name in names]
    finally:
        catalog.close()


def _read_table(catalog: Any, name: str, *, rows: bool) -> ObservedTable:
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return ObservedTable(name, (), (), _rows([]))
    by_id = {s.snapshot_id: s for s in table.metadata.snapshots}
    chain, head = [], table.current_snapshot()
    while head is not None:
        chain.append(head)
        head = by_id.get(head.parent_snapshot_id) if head.parent_snapshot_id else None
    files, added_at = [], {}
    for manifest in chain[0].manifests(table.io) if chain else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            path, size_bytes = entry.data_file.file_path, entry.data_file.file_size_in_bytes
            files.append(ObservedFile(path, size_bytes, _stored_bytes(path)))
            added_at[path] = by_id[entry.snapshot_id].sequence_number
    snapshots = tuple(_snapshot(s, table) for s in reversed(chain))
    read = _scan(table, added_at) if rows else _rows([])
    return ObservedTable(name, snapshots, tuple(files), read)


def _stored_bytes(path: str) -> int | None:
    try:
        return os.stat(Path(urlparse(path).path)).st_size  # noqa: PTH116 - half the cost
    except FileNotFoundError:
        return None


def _snapshot(snapshot: Any, table: Table) -> ObservedSnapshot:
    summary = snapshot.summary.additional_properties
    offsets = [json.loads(v) for k, v in summary.items() if k.startswith(OFFSETS_PREFIX)]
    given = summary.get(VALID_THROUGH)
    return ObservedSnapshot(
        snapshot.sequence_number,
        summary.get(COMMIT_ID),
        {int(p): offset for p, offset in offsets[0].items()} if offsets else None,
        None if given is None else round(datetime.fromisoformat(given).timestamp() * 1000),
        tuple(
            manifest.sequence_number
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
        ),
    )


def _scan(table: Table, added_at: Mapping[str, int]) -> Rows:
    """Return the rows of PyIceberg's scan, file by file."""
    scan = table.scan(selected_fields=_COLUMNS)
    reader = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue())
    return _rows(
        [
            (reader.to_table([task]), added_at.get(task.file.file_path, 0))
            for task in scan.plan_files()
        ]
    )


def _rows(parts: Sequence[tuple[pa.Table, int]]) -> Rows:
    if not parts:
        return Rows(*(np.zeros(0, np.int64) for _ in range(3)))
    partitions, sequences = (
        np.concatenate([p.column(name).to_numpy() for p, _ in parts]).astype(np.int64)
        for name in _COLUMNS
    )
    when = np.concatenate([np.full(len(p), at, np.int64) for p, at in parts])
    return Rows(partitions, sequences, when)
