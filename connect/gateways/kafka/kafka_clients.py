"""The Kafka clients: transactions and reading.

Rules of this file:
- A producer whose transaction failed in any way is closed and replaced (librdkafka speaks the older
  EndTxn, so a reused producer could finish a later transaction): ``transact`` is all or raise.
- No delivery callbacks: a fenced producer raises SystemError out of ``poll`` when one runs.
- A transaction that was aborted without an error may be followed by another: all of its requests
  were answered.
- Offsets are next offsets, the first not yet read.

Source:
    Behaviour measured against Kafka 4.3.1 with confluent-kafka 2.16.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as ClientPartition

from connect.errors import Fenced, InvariantViolation, RetriableError
from connect.gateways.kafka.kafka_errors import (
    SERVICE,
    UNAVAILABLE,
    ConnectionFailures,
    RequiredAcls,
    acls_of_transaction,
    map_error,
    mapped,
    unless_refused,
)
from connect.gateways.kafka.kafka_properties import client_properties, to_librdkafka
from connect.gateways.kafka.sent_offsets import send_in_time
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord

__all__ = [
    "LogReader",
    "ProducerMessage",
    "Stage",
    "TransactionalProducer",
    "client_properties",
    "require_transactions",
]

Stage: TypeAlias = Literal["begin", "begun", "producing", "produced", "committing", "committed"]
REQUEST_TIMEOUT_S = 30.0
CONNECT_S = 0.5  # of an init for its first connection
REFUSAL_TIMEOUT_S = 5.0  # a broker that restarts may refuse a login for a moment
SOCKET_TIMEOUT_MS = 30_000
TRANSACTION_TIMEOUT_MS = 60_000
OFFSETS_TIMEOUT_S = REQUEST_TIMEOUT_S + 5.0  # later than the client's own, where that works

_PASSING = {
    KafkaError._TRANSPORT,  # noqa: SLF001 - public constants of the client
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError.GROUP_AUTHORIZATION_FAILED,  # the client asks for the reader's group, unused
}


@dataclass(frozen=True, slots=True)
class ProducerMessage:
    """A record to produce; ``timestamp_ms`` None lets the client set it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def _ignore_error(_: KafkaError) -> None:
    """Client-level errors surface in the calls; without a callback librdkafka prints them."""


def librdkafka_config(
    properties: Mapping[str, str],
    role: str,
    failures: ConnectionFailures | None = None,
    **own: Any,
) -> dict[str, Any]:
    """Configuration for librdkafka with ``own`` settings on top; failures go to ``failures``."""
    client = to_librdkafka(properties, role=role)
    limits: dict[str, Any] = {}
    if role != "producer":  # the client bounds a producer's by the transaction's
        fetch_ms = str(client.get("fetch.wait.max.ms", ""))
        longest_ms = int(fetch_ms) if fetch_ms.isdecimal() else 0
        limits["socket.timeout.ms"] = max(SOCKET_TIMEOUT_MS, longest_ms + 2_000)
    return {
        **limits,
        **client,
        "error_cb": _ignore_error if failures is None else failures.note,
        "log_level": 0,
        **own,
    }


def to_client(offsets: Mapping[TopicPartition, int]) -> list[ClientPartition]:
    """Our partitions with offsets as the client's."""
    return [ClientPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]


class TransactionalProducer:
    """A producer with a stable transactional id.

    Args:
        properties: Java-named client properties.
        transactional_id: the last producer that initialises it fences all earlier ones.
        transaction_timeout_ms: after this the broker aborts a transaction left open.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        transactional_id: str,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        self.transactional_id = transactional_id
        self._properties = dict(properties)
        self._failures = ConnectionFailures()
        own: dict[str, Any] = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "partitioner": "murmur2_random",  # Java's: a key stays in its partition on a move
            # the next transaction waits this long for the last one to complete: 3 ms, not 100
            "retry.backoff.ms": 10,
        }
        settings = librdkafka_config(properties, "producer", self._failures, **own)
        settings.setdefault("message.max.bytes", 1_048_576)
        # each event brings its schema of 8 kB: of a round's events a few per cent are left
        settings.setdefault("compression.type", "zstd")
        # a control topic that was deleted must be missed, not made again with other settings
        settings.setdefault("allow.auto.create.topics", "false")
        settings.pop("delivery.timeout.ms", None)  # bounded by the transaction's timeout
        with mapped(f"producer {transactional_id}"):
            self._client: Any = Producer(settings)

    @property
    def request_bytes_max(self) -> int:
        """``max.request.size``: no message may be larger."""
        return int(self._properties.get("max.request.size", 1_048_576))

    def init(self, timeout_s: float = REQUEST_TIMEOUT_S, *, topic: str | None = None) -> None:
        """Fence every earlier producer of this id and abort what it left open.

        Args:
            timeout_s: for the answer.
            topic: one that exists and that the producer may describe; it makes this faster.

        Raises:
            Fenced: a later one is there already.
            RetriableError: the broker did not answer in time.
        """
        with self._mapped(f"taking over transactional id {self.transactional_id}"):
            if topic is not None:
                self._connect(topic, min(timeout_s, CONNECT_S))
            unless_refused(
                self._continue_init,
                timeout_s,
                failures=self._failures,
                serve=self._serve,
            )

    def _connect(self, topic: str, timeout_s: float) -> None:
        """Wait for a connection to a broker.

        The client requests its transaction coordinator every 500 ms, and fails the first time if
        it has no connection yet: then an init takes 510 ms instead of 65. A request for metadata
        waits for the connection. It is of one topic, because a cluster may have many.
        """
        with contextlib.suppress(KafkaException):  # the init reports it
            self._producer.list_topics(topic, timeout=timeout_s)

    def _continue_init(self, timeout_s: float) -> None:
        """Wait for the init that the first call began.

        An error refers to this method, and not to the client's, which would outlive ``close``.
        """
        self._producer.init_transactions(timeout_s)

    def transact(
        self,
        messages: Iterable[ProducerMessage],
        *,
        group_id: str | None = None,
        offsets: Mapping[TopicPartition, int] | None = None,
        on_stage: Callable[[Stage], None] = lambda _: None,
    ) -> None:
        """Produce ``messages`` and store ``offsets`` for ``group_id`` in one transaction.

        Raises:
            Fenced: another producer took the id over; nothing of this is visible.
            RetriableError: ``transaction_unknown``: it may or may not be committed. Throw the
                producer away, take over with a new one, and read the committed offsets.
        """
        doing = f"transaction of {self.transactional_id}"
        topics: set[str] = set()
        sources = {tp.topic for tp in offsets or {}}
        with self._mapped(doing, topics, sources, group_id, code="transaction_unknown"):
            self._begin(on_stage)
            for number, message in enumerate(messages):
                topics.add(message.topic)
                self._produce(message)
                if number == 0:
                    on_stage("producing")
            if group_id is not None and offsets:
                self._send_offsets(group_id, offsets, doing)
            self._flush(doing)
            on_stage("produced")
            on_stage("committing")
            self._producer.commit_transaction(REQUEST_TIMEOUT_S)
        on_stage("committed")

    def _begin(self, on_stage: Callable[[Stage], None]) -> None:
        on_stage("begin")
        self._producer.begin_transaction()
        on_stage("begun")

    @contextlib.contextmanager
    def _mapped(
        self,
        doing: str,
        topics: Collection[str] = (),
        sources: Collection[str] = (),
        group_id: str | None = None,
        *,
        code: str = UNAVAILABLE,
    ) -> Iterator[None]:
        """Map what the client raises; ``topics`` is read when it has raised."""
        try:
            yield
        except (KafkaException, SystemError, BufferError) as e:
            needs = acls_of_transaction(self.transactional_id, topics, sources, group_id)
            worst = self._failures.served(self._serve)
            raise map_error(e, doing, code=code, needs=needs, failure=worst) from e
        self._failures.forget()

    def _serve(self) -> None:
        if self._client is not None:
            self._client.poll(0)

    def _produce(self, message: ProducerMessage) -> None:
        arguments: dict[str, Any] = {"key": message.key, "headers": list(message.headers) or None}
        if message.timestamp_ms is not None:
            arguments["timestamp"] = message.timestamp_ms
        if message.partition is not None:
            arguments["partition"] = message.partition
        while True:
            try:
                self._producer.produce(message.topic, message.value, **arguments)
            except BufferError:  # the local queue is full: let it drain
                self._producer.poll(0.1)
            else:
                return

    def _flush(self, doing: str) -> None:
        """Wait until all messages are acknowledged; shorter while the login is refused."""
        left = self._producer.flush(REFUSAL_TIMEOUT_S)
        if left and not self._failures.is_refusal:
            left = self._producer.flush(REQUEST_TIMEOUT_S - REFUSAL_TIMEOUT_S)
        if left:
            self._failures.served(self._serve)
            raise RetriableError(
                f"{doing}: {left} messages were not acknowledged in time{self._failures.reason}",
                code="transaction_unknown",
            )

    def _send_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], doing: str
    ) -> None:
        """Add offsets to the open transaction."""
        metadata = _metadata_of(group_id)
        send_in_time(
            lambda: self._producer.send_offsets_to_transaction(
                to_client(offsets), metadata, REQUEST_TIMEOUT_S
            ),
            OFFSETS_TIMEOUT_S,
            f"{doing}, group {group_id}",
        )

    def close(self) -> None:
        """Release the client; an open transaction is left to the next owner of the id.

        An ``init`` that timed out continues in the client's threads: when the broker answers, it
        would fence the successor. So the client ends now, even if an error still refers to self.
        """
        if self._client is None:
            return
        with contextlib.suppress(KafkaException, SystemError):
            self._client.purge(blocking=False)  # a broker that is gone would not answer
            self._client.poll(0)
        self._client = None

    @property
    def _producer(self) -> Any:
        if self._client is None:
            raise InvariantViolation(f"producer {self.transactional_id} is closed")
        return self._client


@lru_cache(maxsize=10_000)
def _metadata_of(group_id: str) -> Any:
    """Return a group without a member, as the client encodes it.

    Only a consumer can make it. It connects to nothing and is closed at once, because each open
    client has several threads.
    """
    consumer = Consumer({"group.id": group_id, "log_level": 0})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


def require_transactions(
    properties: Mapping[str, str], group_id: str, timeout_s: float = REQUEST_TIMEOUT_S
) -> None:
    """Check that the brokers take a transactional producer; nothing is written.

    Args:
        properties: Java-named producer properties.
        group_id: of the node; the transactional id ``<group.id>-preflight`` is for checks only.
        timeout_s: for the answer.

    Raises:
        RetriableError: ``kafka_service``, they have no transactions; or they do not answer.
        ConfigError: an ACL is missing.
    """
    producer = TransactionalProducer(properties, f"{group_id}-preflight")
    try:
        with contextlib.suppress(Fenced):  # by another check of the same moment
            producer.init(timeout_s)
    except RetriableError as error:
        if error.code != SERVICE:
            raise
        raise RetriableError(
            f"{error.message}. Icefloe needs transactions; use a Kafka service that has them",
            code=SERVICE,
        ) from error
    finally:
        producer.close()


class LogReader:
    """Reads partitions from given offsets, read_committed, without any group.

    Not thread-safe. Positions move past transaction markers as well as records.

    Args:
        properties: Java-named client properties.
        queue_bytes_max: bound of what is fetched ahead.
    """

    def __init__(
        self, properties: Mapping[str, str], *, queue_bytes_max: int = 32 * 1024 * 1024
    ) -> None:
        own: dict[str, Any] = {
            "group.id": "icefloe-reader",  # never committed to; the client insists on one
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "queued.max.messages.kbytes": queue_bytes_max // 1024,
        }
        self._failures = ConnectionFailures()
        with mapped("reader"):
            self._consumer = Consumer(
                librdkafka_config(properties, "consumer", self._failures, **own)
            )
        self._positions: dict[TopicPartition, int] = {}

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        self._positions = dict(positions)
        with mapped("assigning partitions"):
            self._consumer.assign(to_client(positions))

    def poll(self, timeout_ms: int, max_records: int = 500) -> list[KafkaRecord]:
        """Return what is there, waiting up to ``timeout_ms`` for the first record.

        Raises:
            RetriableError: the broker is away, or refuses the login or the TLS handshake;
                ``offset_out_of_range`` when a position is gone.
            ConfigError: an ACL is missing.
        """
        with mapped("reading"):
            # consume() alone would wait out its time for a full batch
            first = self._consumer.poll(timeout_ms / 1000)
            if first is None:
                self._failures.raise_refusal("reading")
                return []
            messages = [first, *self._consumer.consume(max_records - 1, 0)]
        records = []
        for m in messages:
            error = m.error()
            if error is None:
                records.append(_record(m))
                self._positions[TopicPartition(m.topic(), m.partition())] = m.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                # the end of file position counts transaction markers, records do not
                self._positions[TopicPartition(m.topic(), m.partition())] = m.offset()
            elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
                raise RetriableError(
                    f"reading: {error.str()}",
                    code="offset_out_of_range",
                    topic=m.topic(),
                    partition=m.partition(),
                    offset=self._positions.get(TopicPartition(m.topic(), m.partition())),
                )
            elif error.code() not in _PASSING:
                needs = RequiredAcls(topic=f"Read on Topic {m.topic()}")
                raise map_error(KafkaException(error), "reading", needs=needs)
        return records

    def positions(self) -> dict[TopicPartition, int]:
        """Next offset to be read of each partition; past markers once the end was reached."""
        return dict(self._positions)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


def _record(m: Any) -> KafkaRecord:
    kind, timestamp_ms = m.timestamp()
    has_time = kind != TIMESTAMP_NOT_AVAILABLE
    return KafkaRecord(
        topic=m.topic(),
        partition=m.partition(),
        offset=m.offset(),
        timestamp_ms=timestamp_ms if has_time else None,
        timestamp_type=kind - 1,
        key=m.key(),
        value=m.value(),
        headers=tuple(m.headers() or ()),
    )
