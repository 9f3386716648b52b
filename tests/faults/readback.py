"""Reads log and tables back with clients of their own, in the checkers' form."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from connect.embedded.payments import kind_codes
from tests.faults.checkers import FileSeen, Log, Rows, SnapshotSeen, TableSeen

OFFSETS_PREFIX = "kafka.connect.offsets."
COMMIT_ID = "kafka.connect.commit-id"
VALID_THROUGH = "kafka.connect.valid-through-ts"
READ_TIMEOUT_S = 60.0
_COLUMNS = ("partition", "sequence")
_SEQUENCE = b'"sequence":'


def read_log(bootstrap_servers: str, topic: str) -> tuple[Log, dict[int, int]]:
    """Every record of a topic of payments, and where its partitions end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "icefloe-faults-log",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 65536,
            "log_level": 0,
        }
    )
    try:
        parts = consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic].partitions
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=READ_TIMEOUT_S)[1]
            for p in parts
        }
        consumer.assign([TopicPartition(topic, p, 0) for p in parts])
        found = _consume(consumer, ends)
    finally:
        consumer.close()
    records = np.array(found, dtype=np.int64).reshape(-1, 3)
    partitions, sequences, timestamps_ms = records[:, 0], records[:, 1], records[:, 2]
    tables = np.zeros(len(records), np.int64)
    for partition in parts:
        chosen = partitions == partition
        tables[chosen] = kind_codes(partition, sequences[chosen])
    return Log(partitions, sequences, timestamps_ms, tables), ends


def _consume(consumer: Consumer, ends: Mapping[int, int]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    left = {partition: end for partition, end in ends.items() if end}
    while left:
        messages = consumer.consume(10_000, READ_TIMEOUT_S)
        assert messages, f"nothing more was read, partitions end at {ends}"
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            value, partition = message.value(), message.partition()
            start = value.index(_SEQUENCE) + len(_SEQUENCE)
            sequence = int(value[start : value.index(b",", start)])
            found.append((partition, sequence, message.timestamp()[1]))
            if message.offset() + 1 >= left.get(partition, 0):
                left.pop(partition, None)
    return found


def read_tables(
    catalog_name: str, properties: Mapping[str, str], names: Sequence[str]
) -> list[TableSeen]:
    """These tables, whole, with PyIceberg; an absent one has nothing in it."""
    catalog = load_catalog(catalog_name, **properties)
    try:
        return [_read_table(catalog, name) for name in names]
    finally:
        catalog.close()


def _read_table(catalog: Any, name: str) -> TableSeen:
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        return TableSeen(name, (), (), _rows([]))
    by_id = {s.snapshot_id: s for s in table.metadata.snapshots}
    chain, head = [], table.current_snapshot()
    while head is not None:
        chain.append(head)
        head = by_id.get(head.parent_snapshot_id) if head.parent_snapshot_id else None
    files, added_at = [], {}
    for manifest in chain[0].manifests(table.io) if chain else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            path, size_bytes = entry.data_file.file_path, entry.data_file.file_size_in_bytes
            files.append(FileSeen(path, size_bytes, _stored_bytes(path)))
            added_at[path] = by_id[entry.snapshot_id].sequence_number
    snapshots = tuple(_snapshot(s) for s in reversed(chain))
    return TableSeen(name, snapshots, tuple(files), _scan(table, added_at))


def _stored_bytes(path: str) -> int | None:
    try:
        return os.stat(Path(urlparse(path).path)).st_size  # noqa: PTH116 - half the cost
    except FileNotFoundError:
        return None


def _snapshot(snapshot: Any) -> SnapshotSeen:
    summary = snapshot.summary.additional_properties
    offsets = [json.loads(v) for k, v in summary.items() if k.startswith(OFFSETS_PREFIX)]
    given = summary.get(VALID_THROUGH)
    return SnapshotSeen(
        snapshot.sequence_number,
        summary.get(COMMIT_ID),
        {int(p): offset for p, offset in offsets[0].items()} if offsets else None,
        None if given is None else round(datetime.fromisoformat(given).timestamp() * 1000),
    )


def _scan(table: Table, added_at: Mapping[str, int]) -> Rows:
    """The rows as PyIceberg's scan gives them, file by file."""
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
