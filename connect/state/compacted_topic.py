"""A compacted topic as a small database: checked, read to its end, followed, written.

Rules of this file:
- A write returns after it is committed *and* read back by this process, so whoever wrote sees it.
- Writes of one log are in one order; each write is one transaction, all or nothing.
- A producer that failed is thrown away. When the outcome is unknown the same records are written
  again: they are keyed and whole, so twice is as good as once.
- Losing the transactional id (``Fenced``) is final until it is acquired anew: somebody else acts in
  our place, and taking the id back unasked would fence him.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from connect.clock import Clock
from connect.errors import ConfigError, Fenced, IcefloeError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, ProducerMessage, TransactionalProducer
from connect.logs import logger
from connect.model.layout import TopicPartition

IDLE_POLL_MS = 100
RETRY_PAUSE_S = 0.5
WRITE_TIMEOUT_MS = 60_000
METADATA_TIMEOUT_MS = 10_000
CLOSE_TIMEOUT_S = 3.0

OnRecord = Callable[[str, bytes | None], None]


@dataclass(frozen=True, slots=True)
class StorageTopic:
    """A compacted topic of the node's own.

    Attributes:
        name: of the topic.
        setting: the node property that names it, for errors.
        partitions: of a created topic.
        replication_factor: of a created topic; -1 is the broker's default.
        is_ordered: whether it must have exactly one partition.
    """

    name: str
    setting: str
    partitions: int = 1
    replication_factor: int = -1
    is_ordered: bool = False

    def ensure(self, admin: KafkaAdmin) -> None:
        """Create the topic, or check the one that is there.

        Raises:
            ConfigError: ``storage_topic``: wrong cleanup policy or partition count.
            RetriableError: the broker is away.
        """
        wanted = {"cleanup.policy": "compact"}
        factor = self.replication_factor
        if admin.ensure_topic(self.name, self.partitions, wanted, replication_factor=factor):
            return
        given = f"topic {self.name!r} given as {self.setting}"
        policy = admin.topic_config(self.name).get("cleanup.policy", "delete")
        if policy != "compact":
            raise ConfigError(
                f"{given} must have cleanup.policy=compact, it has cleanup.policy={policy}: its "
                "records would be lost with time",
                code="storage_topic",
            )
        count = admin.topics().get(self.name, self.partitions)
        if self.is_ordered and count != 1:
            raise ConfigError(
                f"{given} must have a single partition, it has {count}: the order of changes "
                "would be lost",
                code="storage_topic",
            )


def read_all(
    admin: KafkaAdmin, reader: LogReader, topic: str, on_record: OnRecord, *, clock: Clock
) -> None:
    """Hand every record of the topic, up to its end as of now, to ``on_record``.

    The reader stays assigned and goes on behind the last record read.

    Raises:
        RetriableError: the broker is away, or the topic does not exist.
    """
    marks = _watermarks(admin, topic, clock)
    reader.assign({tp: start for tp, (start, _) in marks.items()})
    while any(reader.positions()[tp] < end for tp, (_, end) in marks.items()):
        for record in reader.poll(IDLE_POLL_MS, 1) + reader.poll(0):
            if record.key is not None:
                on_record(record.key.decode(errors="replace"), record.value)


def _watermarks(
    admin: KafkaAdmin, topic: str, clock: Clock
) -> dict[TopicPartition, tuple[int, int]]:
    """Start and end of each partition; a topic just created is not at once known everywhere."""
    deadline_ms = clock.monotonic_ms() + METADATA_TIMEOUT_MS
    while True:
        try:
            partitions = max(1, admin.topics().get(topic, 0))  # of none, the first is missing
            return admin.watermarks([TopicPartition(topic, p) for p in range(partitions)])
        except RetriableError:
            if clock.monotonic_ms() >= deadline_ms:
                raise
            threading.Event().wait(0.1)


class CompactedLog:
    """One compacted topic, read and written by this process.

    Args:
        topic: which one.
        admin: the cluster.
        reader_properties: Java-named consumer properties.
        producer_properties: Java-named producer properties.
        transactional_id: id under which this process writes.
        on_record: called for every record in order; at start by the starting thread, later by
            the log's own; must not raise and not write.
        clock: for time limits.
    """

    def __init__(
        self,
        topic: StorageTopic,
        *,
        admin: KafkaAdmin,
        reader_properties: Mapping[str, str],
        producer_properties: Mapping[str, str],
        transactional_id: str,
        on_record: OnRecord,
        clock: Clock,
    ) -> None:
        self.topic = topic.name
        self._storage = topic
        self._admin = admin
        # the end of a topic is known after one empty fetch: do not let it wait long
        self._reader_properties = {**reader_properties, "fetch.max.wait.ms": "100"}
        self._producer_properties = dict(producer_properties)
        self._transactional_id = transactional_id
        self._on_record = on_record
        self._clock = clock
        self._producer: TransactionalProducer | None = None
        self._fenced: Fenced | None = None
        self._write_lock = threading.Lock()
        self._read_back = threading.Condition()
        self._awaited: set[tuple[str, bytes | None]] = set()
        self._position = 0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = logger("log").bind(topic=topic.name)

    def start(self) -> None:
        """Create or check the topic, read it to its end, then follow it on a thread of its own.

        Raises:
            ConfigError: the topic does not serve.
            RetriableError: the broker is away.
        """
        self._storage.ensure(self._admin)
        reader = self._open()
        self._thread = threading.Thread(
            target=self._follow, args=(reader,), name=f"log-{self.topic}", daemon=True
        )
        self._thread.start()

    def acquire(self) -> None:
        """Take over the transactional id now, from whoever has it.

        Raises:
            RetriableError: the broker is away.
        """
        with self._write_lock:
            self._fenced = None
            self._drop_producer()
            self._open_producer()

    @property
    def position(self) -> int:
        """Offset up to which a topic of one partition has been read."""
        return self._position

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until a topic of one partition is read up to an offset."""
        with self._read_back:
            return self._read_back.wait_for(lambda: self._position >= offset, timeout_s)

    def write(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Write keys and values in one transaction; return when they are read back.

        Raises:
            Fenced: another process writes under our transactional id.
            RetriableError: not acknowledged in time; perhaps written all the same.
        """
        messages = [ProducerMessage(self.topic, key.encode(), value) for key, value in records]
        with self._write_lock:
            deadline_ms = self._clock.monotonic_ms() + WRITE_TIMEOUT_MS
            with self._read_back:
                self._awaited = set(records)
            self._transact(messages, deadline_ms)
            self._await_read_back(deadline_ms)

    def close(self) -> None:
        """Stop following. A write that waits for a broker that is away is left to itself."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSE_TIMEOUT_S)
        if self._write_lock.acquire(timeout=CLOSE_TIMEOUT_S):
            self._drop_producer()
            self._write_lock.release()

    def _transact(self, messages: Sequence[ProducerMessage], deadline_ms: int) -> None:
        while True:
            try:
                self._open_producer().transact(messages)
            except RetriableError as e:
                self._drop_producer()
                if self._clock.monotonic_ms() >= deadline_ms or self._closing.is_set():
                    raise
                self._log.warning("write failed, trying again", error=str(e))
                self._closing.wait(RETRY_PAUSE_S)
            except IcefloeError as e:
                self._drop_producer()
                self._fenced = e if isinstance(e, Fenced) else None
                raise
            else:
                return

    def _await_read_back(self, deadline_ms: int) -> None:
        with self._read_back:
            while self._awaited:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise RetriableError(
                        "written, but not read back in time", code="read_back", topic=self.topic
                    )
                self._read_back.wait(left_ms / 1000)

    def _open_producer(self) -> TransactionalProducer:
        if self._fenced is not None:
            # taking the id over again would fence whoever acts in our place
            raise Fenced(self._fenced.message, topic=self.topic)
        if self._producer is None:
            producer = TransactionalProducer(self._producer_properties, self._transactional_id)
            producer.init()
            self._producer = producer
        return self._producer

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _open(self) -> LogReader:
        reader = LogReader(self._reader_properties)
        try:
            read_all(self._admin, reader, self.topic, self._saw, clock=self._clock)
        except IcefloeError:
            reader.close()
            raise
        return reader

    def _follow(self, reader: LogReader) -> None:
        current: LogReader | None = reader
        while not self._closing.is_set():
            try:
                if current is None:
                    current = self._open()  # from the start: folding again changes nothing
                for record in current.poll(IDLE_POLL_MS, 1) + current.poll(0):
                    if record.key is not None:
                        key = record.key.decode(errors="replace")
                        self._saw(key, record.value, record.offset)
            except IcefloeError as e:
                self._log.warning("reading failed, trying again", error=str(e))
                if current is not None:
                    current.close()
                    current = None
                self._closing.wait(RETRY_PAUSE_S)
        if current is not None:
            current.close()

    def _saw(self, key: str, value: bytes | None, offset: int = -1) -> None:
        self._on_record(key, value)
        with self._read_back:
            self._position = max(self._position, offset + 1)
            self._awaited.discard((key, value))
            self._read_back.notify_all()
