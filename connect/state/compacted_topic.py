"""A compacted topic as a small database: checked, read to its end, followed, written.

Rules of this file:
- A write returns after it is committed *and* read back by this process, so its caller sees it.
- Writes of one topic have one order. Each write is one transaction.
- A producer that failed is closed. When the outcome is unknown, the same records are written
  again. Each record holds the whole value of its key, so a repeated write changes nothing.
- Losing the transactional id (``Fenced``) is final until ``acquire``. Another process writes then,
  and to initialise the id again would fence it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from connect.clock import Clock
from connect.errors import ConfigError, Fenced, IcefloeError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, ProducerMessage, TransactionalProducer
from connect.gateways.kafka.kafka_errors import SERVICE
from connect.logs import logger
from connect.model.layout import TopicPartition
from connect.state.state_log import OnRecord

IDLE_POLL_MS = 100
RETRY_PAUSE_S = 0.5
WRITE_TIMEOUT_MS = 60_000
METADATA_TIMEOUT_MS = 10_000
CLOSE_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class StorageTopic:
    """A compacted topic in which the node stores its state.

    Attributes:
        setting: the node property that names it, for errors.
        partitions: partition count of a topic that this node creates.
        replication_factor: of a topic that this node creates; -1 is the broker's default.
        is_ordered: whether it must have exactly one partition.
    """

    name: str
    setting: str
    partitions: int = 1
    replication_factor: int = -1
    is_ordered: bool = False

    def ensure(self, admin: KafkaAdmin) -> None:
        """Create the topic, or check the existing one.

        Raises:
            ConfigError: ``storage_topic``: wrong cleanup policy or partition count;
                ``kafka_service``: the brokers have no compaction.
            RetriableError: the broker cannot be reached.
        """
        topic_text = f"topic {self.name!r} given as {self.setting}"
        is_new = self._create(admin)
        policy = admin.topic_config(self.name).get("cleanup.policy", "delete")
        if is_new and policy != "compact":
            raise _no_compaction(f"it creates topics with cleanup.policy={policy}", self.name)
        if policy != "compact":
            raise ConfigError(
                f"{topic_text} must have cleanup.policy=compact, it has cleanup.policy={policy}: "
                "its records would be lost with time",
                code="storage_topic",
            )
        count = admin.topics().get(self.name, self.partitions)
        if self.is_ordered and count != 1:
            raise ConfigError(
                f"{topic_text} must have a single partition, it has {count}: the order of changes "
                "would be lost",
                code="storage_topic",
            )

    def _create(self, admin: KafkaAdmin) -> bool:
        """Create the topic; return whether it did not exist.

        Raises:
            ConfigError: ``kafka_service``: the brokers would create it without compaction only.
            RetriableError: ``topic_refused``, or the broker cannot be reached.
        """

        def create(config: Mapping[str, str], *, is_trial: bool) -> bool:
            factor = self.replication_factor
            return admin.ensure_topic(
                self.name, self.partitions, config, replication_factor=factor, is_trial=is_trial
            )

        try:
            return create({"cleanup.policy": "compact"}, is_trial=False)
        except RetriableError as error:
            if error.code != "topic_refused":
                raise
            with contextlib.suppress(RetriableError):
                create({}, is_trial=True)
                raise _no_compaction(
                    f"it does not accept cleanup.policy=compact: {error.message}", self.name
                ) from error
            raise


def _no_compaction(reason: str, topic: str) -> ConfigError:
    return ConfigError(
        f"the Kafka service has no compacted topics: {reason}. Icefloe keeps its state in them; "
        "use a service with compaction",
        code=SERVICE,
        topic=topic,
    )


def read_all(
    admin: KafkaAdmin, reader: LogReader, topic: str, on_record: OnRecord, *, clock: Clock
) -> None:
    """Pass every record of the topic, up to its current end, to ``on_record``.

    The reader stays assigned; its next poll returns the record after the last one read.

    Raises:
        RetriableError: the broker cannot be reached, or the topic does not exist.
    """
    marks = watermarks(admin, topic, clock)
    reader.assign({tp: start for tp, (start, _) in marks.items()})
    read_until(reader, {tp: end for tp, (_, end) in marks.items()}, on_record)


def read_until(reader: LogReader, ends: Mapping[TopicPartition, int], on_record: OnRecord) -> None:
    """Pass every record of an assigned reader to ``on_record``, up to these offsets at least.

    Raises:
        RetriableError: the broker cannot be reached.
    """
    while any(reader.positions()[tp] < end for tp, end in ends.items()):
        for record in reader.poll(IDLE_POLL_MS, 1) + reader.poll(0):
            if record.key is not None:
                on_record(record.key.decode(errors="replace"), record.value)


def watermarks(
    admin: KafkaAdmin, topic: str, clock: Clock
) -> dict[TopicPartition, tuple[int, int]]:
    """Return start and end of each partition; retried, as new topics reach the brokers late.

    Raises:
        RetriableError: the broker cannot be reached, or the topic does not exist.
    """
    deadline_ms = clock.monotonic_ms() + METADATA_TIMEOUT_MS
    while True:
        try:
            # an unknown topic: partition 0 is missing
            return admin.watermarks(admin.partitions(topic) or [TopicPartition(topic, 0)])
        except RetriableError:
            if clock.monotonic_ms() >= deadline_ms:
                raise
            threading.Event().wait(0.1)


class CompactedTopic:
    """One compacted topic, read and written by this process. Thread-safe.

    Args:
        reader_properties: Java-named consumer properties.
        producer_properties: Java-named producer properties.
        transactional_id: id under which this process writes.
        on_record: called for every record in order: by the starting thread in ``start``, later by
            the topic's own thread. It must neither raise nor write.
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
        self._clock = clock
        self._closing = threading.Event()
        self._reader = TopicFollower(
            topic, admin, reader_properties, on_record, clock=clock, closing=self._closing
        )
        self._writer = TopicWriter(
            topic.name, producer_properties, transactional_id, clock=clock, closing=self._closing
        )
        self._write_lock = threading.Lock()

    def start(self) -> None:
        """Create or check the topic, read it to its end, then follow it on a separate thread.

        Raises:
            ConfigError: the topic cannot be used.
            RetriableError: the broker cannot be reached.
        """
        self._reader.start()

    def acquire(self) -> None:
        """Initialise the transactional id now, which fences its current owner.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        with self._write_lock:
            self._writer.acquire()

    @property
    def position(self) -> int:
        """Offset up to which a topic of one partition has been read."""
        return self._reader.position

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until a topic of one partition is read up to an offset."""
        return self._reader.await_position(offset, timeout_s)

    def write(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Write keys and values in one transaction; return when they are read back.

        Raises:
            Fenced: another process writes under our transactional id.
            RetriableError: not acknowledged in time; perhaps written.
        """
        with self._write_lock:
            deadline_ms = self._clock.monotonic_ms() + WRITE_TIMEOUT_MS
            self._reader.expect(records)
            self._writer.write(records, deadline_ms)
            self._reader.await_expected(deadline_ms)

    def close(self) -> None:
        """Stop following. A write that is waiting for the broker is not awaited."""
        self._closing.set()
        self._reader.join(CLOSE_TIMEOUT_S)
        if self._write_lock.acquire(timeout=CLOSE_TIMEOUT_S):
            self._writer.close()
            self._write_lock.release()


class TopicWriter:
    """Writes transactions to one topic under one transactional id; its owner locks.

    Args:
        properties: Java-named producer properties.
        transactional_id: id under which this process writes.
        closing: ends retries.
    """

    def __init__(
        self,
        topic: str,
        properties: Mapping[str, str],
        transactional_id: str,
        *,
        clock: Clock,
        closing: threading.Event,
    ) -> None:
        self._topic = topic
        self._properties = properties
        self._transactional_id = transactional_id
        self._clock = clock
        self._closing = closing
        self._producer: TransactionalProducer | None = None
        self._fenced: Fenced | None = None
        self._log = logger("log").bind(topic=topic)

    def acquire(self) -> None:
        """Initialise the transactional id with a new producer.

        Raises:
            RetriableError: the broker cannot be reached.
        """
        self._fenced = None
        self.close()
        self._open()

    def write(self, records: Sequence[tuple[str, bytes | None]], deadline_ms: int) -> None:
        """Write records in one transaction, repeated until it is acknowledged.

        Raises:
            Fenced: another process writes under our transactional id.
            RetriableError: not acknowledged in time; perhaps written.
        """
        messages = [ProducerMessage(self._topic, key.encode(), value) for key, value in records]
        while True:
            try:
                self._open().transact(messages)
            except RetriableError as e:
                self.close()
                if self._clock.monotonic_ms() >= deadline_ms or self._closing.is_set():
                    raise
                self._log.warning("write failed, trying again", error=str(e))
                self._closing.wait(RETRY_PAUSE_S)
            except IcefloeError as e:
                self.close()
                self._fenced = e if isinstance(e, Fenced) else None
                raise
            else:
                return

    def close(self) -> None:
        """Close the producer, if there is one."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _open(self) -> TransactionalProducer:
        if self._fenced is not None:
            # to initialise the id again would fence the process that replaced this one
            raise Fenced(self._fenced.message, topic=self._topic)
        if self._producer is None:
            producer = TransactionalProducer(self._properties, self._transactional_id)
            producer.init(topic=self._topic)
            self._producer = producer
        return self._producer


class TopicFollower:
    """Reads one topic from its start and follows it.

    Args:
        properties: Java-named consumer properties.
        on_record: called for every record in order.
        closing: ends the following thread.
    """

    def __init__(
        self,
        topic: StorageTopic,
        admin: KafkaAdmin,
        properties: Mapping[str, str],
        on_record: OnRecord,
        *,
        clock: Clock,
        closing: threading.Event,
    ) -> None:
        self._topic = topic
        self._admin = admin
        self._properties = properties
        self._on_record = on_record
        self._clock = clock
        self._closing = closing
        self._changed = threading.Condition()
        self._expected: set[tuple[str, bytes | None]] = set()
        self._position = 0
        self._thread: threading.Thread | None = None
        self._log = logger("log").bind(topic=topic.name)

    @property
    def position(self) -> int:
        """Offset up to which a topic of one partition has been read."""
        return self._position

    def start(self) -> None:
        """Create or check the topic, read it to its end, then follow it on a separate thread.

        Raises:
            ConfigError: the topic cannot be used.
            RetriableError: the broker cannot be reached.
        """
        self._topic.ensure(self._admin)
        reader = self._open()
        self._thread = threading.Thread(
            target=self._follow, args=(reader,), name=f"log-{self._topic.name}", daemon=True
        )
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait, bounded, for the end of the following thread."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Wait until a topic of one partition is read up to an offset."""
        with self._changed:
            return self._changed.wait_for(lambda: self._position >= offset, timeout_s)

    def expect(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Note the records that ``await_expected`` waits for."""
        with self._changed:
            self._expected = set(records)

    def await_expected(self, deadline_ms: int) -> None:
        """Wait until every expected record is read.

        Raises:
            RetriableError: ``read_back``, not in time.
        """
        with self._changed:
            while self._expected:
                left_ms = deadline_ms - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise RetriableError(
                        "written, but not read back in time",
                        code="read_back",
                        topic=self._topic.name,
                    )
                self._changed.wait(left_ms / 1000)

    def _open(self) -> LogReader:
        """Read the topic to its end; return a reader that continues there.

        The end is known after one empty fetch, which must not wait long. A reader that follows the
        topic for days sends few fetches: a new record ends the wait of a fetch.
        """
        first = LogReader({**self._properties, "fetch.max.wait.ms": "100"})
        try:
            read_all(self._admin, first, self._topic.name, self._read, clock=self._clock)
            positions = first.positions()
        finally:
            first.close()
        reader = LogReader(self._properties)
        reader.assign(positions)
        return reader

    def _follow(self, reader: LogReader) -> None:
        current: LogReader | None = reader
        while not self._closing.is_set():
            try:
                if current is None:
                    current = self._open()  # from the start: reading again changes nothing
                for record in current.poll(IDLE_POLL_MS, 1) + current.poll(0):
                    if record.key is not None:
                        key = record.key.decode(errors="replace")
                        self._read(key, record.value, record.offset)
            except IcefloeError as e:
                self._log.warning("reading failed, trying again", error=str(e))
                if current is not None:
                    current.close()
                    current = None
                self._closing.wait(RETRY_PAUSE_S)
        if current is not None:
            current.close()

    def _read(self, key: str, value: bytes | None, offset: int = -1) -> None:
        self._on_record(key, value)
        with self._changed:
            self._position = max(self._position, offset + 1)
            self._expected.discard((key, value))
            self._changed.notify_all()
