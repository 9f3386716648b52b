"""Records of the soak, and an independent reader of the tables that they become.

Rules of this file:
- A record of the first topic has a number of its own, and is one row.
- A record of the second topic has a key and a version. Its row is the newest version of the key.
  All records of a key are in one partition, so their order is that of the log.
- Every ``BROKEN_EVERY``-th record is not JSON, and is a dead letter.
- The reader uses no code of Icefloe: manifests by PyIceberg, files by PyArrow, and delete files by
  the rules of Iceberg's specification (sequence numbers).
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

APPEND_TOPIC, UPSERT_TOPIC = "soak-append", "soak-upsert"
PARTITIONS = 3
KEYS = 500
BROKEN_EVERY = 997
PAUSE_S = 0.05
ACK_S = 180.0


class SoakProducer:
    """A thread that produces to both topics at an even pace.

    Args:
        kafka: properties of the client.
        records_per_s: of both topics together.

    Attributes:
        appended: numbers of the records of the first topic that must be rows.
        versions: newest version of each key of the second topic.
        broken: values of the records that must be dead letters.
    """

    def __init__(self, kafka: Mapping[str, str], records_per_s: int) -> None:
        self.appended: list[int] = []
        self.versions: dict[int, int] = {}
        self.broken: Counter[bytes] = Counter()
        self.sent = 0
        self._producer = Producer({**kafka, "enable.idempotence": True, "linger.ms": 20})
        self._each_turn = max(1, round(records_per_s * PAUSE_S / 2))
        self._stopping = threading.Event()
        self._is_paused = threading.Event()
        self._failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="soak", daemon=True)

    def start(self) -> None:
        """Start to produce."""
        self._thread.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Produce nothing until the block ends."""
        self._is_paused.set()
        try:
            yield
        finally:
            self._is_paused.clear()

    def stop(self) -> None:
        """Stop; return when the broker has acknowledged every record."""
        self._stopping.set()
        self._thread.join(ACK_S)
        assert not self._thread.is_alive()
        assert self._producer.flush(ACK_S) == 0
        assert not self._failures, self._failures[:3]

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            for _ in range(0 if self._is_paused.is_set() else self._each_turn):
                number = self.sent
                self.sent += 1
                self._send_both(number)
            self._producer.poll(0)

    def _send_both(self, number: int) -> None:
        is_broken = number % BROKEN_EVERY == BROKEN_EVERY - 1
        key = number % KEYS
        if not is_broken:
            self.appended.append(number)
            self.versions[key] = number
        self._send(APPEND_TOPIC, number, {"id": number, "text": f"n{number}"}, is_broken=is_broken)
        self._send(UPSERT_TOPIC, key, {"id": key, "version": number}, is_broken=is_broken)

    def _send(self, topic: str, number: int, value: dict[str, Any], *, is_broken: bool) -> None:
        text = json.dumps({**value, "of": topic}).encode()
        if is_broken:
            text = text[:-1]
            self.broken[text] += 1
        self._producer.produce(
            topic,
            text,
            partition=number % PARTITIONS,
            on_delivery=self._delivered,
        )

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self._failures.append(str(error))


def read_values(kafka: Mapping[str, str], topic: str) -> list[bytes]:
    """Return the values of the committed records of a topic with one partition."""
    settings = {"group.id": "soak-reader", "enable.partition.eof": True}
    consumer = Consumer({**kafka, **settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    try:
        while (message := consumer.poll(ACK_S)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
            found.append(message.value() or b"")
    finally:
        consumer.close()
    return found


def row_differences(wanted: Counter[Any], found: Counter[Any]) -> dict[str, int]:
    """Return how many rows are lost, and how many are there too often or unknown."""
    return {"lost": (wanted - found).total(), "twice": (found - wanted).total()}


def read_rows(table: Table, *columns: str) -> Counter[tuple[Any, ...]]:
    """Return the rows of the newest snapshot, deletes applied; the key column is ``id``."""
    snapshot = table.current_snapshot()
    data: list[tuple[str, int]] = []
    deleted_keys: dict[int, int] = {}  # key -> highest sequence number of a delete
    positions: dict[str, set[int]] = defaultdict(set)
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            path, sequence = entry.data_file.file_path, entry.sequence_number or 0
            if entry.data_file.content == DataFileContent.DATA:
                data.append((path, sequence))
            elif entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                for (key,) in _file_rows(table, path, "id"):
                    deleted_keys[key] = max(sequence, deleted_keys.get(key, -1))
            else:
                for file, position in _file_rows(table, path, "file_path", "pos"):
                    positions[file].add(position)
    found: Counter[tuple[Any, ...]] = Counter()
    for path, sequence in data:
        gone = positions.get(path, set())
        for position, row in enumerate(_file_rows(table, path, "id", *columns)):
            if position not in gone and deleted_keys.get(row[0], -1) <= sequence:
                found[row] += 1
    return found


def _file_rows(table: Table, path: str, *columns: str) -> list[tuple[Any, ...]]:
    with table.io.new_input(path).open() as file:
        read = pq.read_table(file, columns=list(columns))
    return list(zip(*(read.column(name).to_pylist() for name in columns), strict=True))
