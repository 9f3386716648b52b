"""Consumer groups by the Kafka admin client: members and committed offsets.

Rules of this file:
- librdkafka never gives up a request to a group's coordinator; ``CoordinatorClient`` has the time
  limit and replaces the client.
- A consumer reads committed offsets, because the admin client crashes on some answers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import (
    REQUEST_TIMEOUT_S,
    librdkafka_config,
    to_client,
)
from connect.gateways.kafka.kafka_errors import (
    UNAVAILABLE,
    ConnectionFailures,
    RequiredAcls,
    mapped,
    unless_refused,
)
from connect.model.layout import TopicPartition

PENDING_TIMEOUT_S = 10.0
MOVE_POLLS = 50
MOVE_PAUSE_S = 0.1
ANSWER_TIMEOUT_S = 10.0
# the longest that librdkafka takes
_CLIENT_TIMEOUT_S = 3600.0
_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
# what Java's admin client repeats: PartitionLeaderStrategy and ListOffsetsHandler
_LEADER_MOVES = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    # the client's own, public: it has no leader, or does not know the partition
    KafkaError._NOENT,  # noqa: SLF001
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_GROUP_HAS_MEMBERS = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC,
}


class GroupAdmin:
    """Requests about consumer groups. Thread-safe; every call has a time limit.

    Args:
        properties: Java-named client properties.
        timeout_s: for every call.
    """

    def __init__(
        self, properties: Mapping[str, str], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self._properties = properties
        self._timeout_s = timeout_s
        self._failures = ConnectionFailures()
        self._coordinator = CoordinatorClient(self._client, timeout_s, self._failures)
        self._open: AdminClient | None = self._client()

    def close(self) -> None:
        """Close the connections, even if an error still refers to self."""
        if self._open is not None:
            self._open.poll(0)
        self._open = None
        self._coordinator.close()

    @property
    def _admin(self) -> AdminClient:
        if self._open is None:
            raise RetriableError("the admin client is closed", code=UNAVAILABLE)
        return self._open

    def committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the committed offset of each partition; None where the group has none.

        The call waits for the end of a transaction that holds offsets. A consumer sends the
        request: the admin client of librdkafka 2.16.0 dereferences a null pointer when the answer
        is that the group's coordinator has moved or is loading (``rd_kafka_handle_OffsetFetch``).

        Raises:
            RetriableError: the broker is unavailable; ``offsets_pending``: an open transaction
                holds offsets.
        """
        if not partitions:
            return {}
        client_partitions = [ClientPartition(tp.topic, tp.partition) for tp in partitions]
        needs = RequiredAcls(
            topic="Describe on Topic " + ", ".join(sorted({tp.topic for tp in partitions}))[:200],
            group=f"Describe on Group {group}",
        )
        doing = f"reading offsets of group {group}"
        with mapped(doing, needs=needs, failures=self._failures):
            try:
                # this isolation makes the request ask for stable offsets
                answered = self._offsets(
                    group, client_partitions, "read_committed", self._timeout_s
                )
            except KafkaException as e:
                if e.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - the public name
                    raise
                shorter_s = min(PENDING_TIMEOUT_S, self._timeout_s)
                self._offsets(group, client_partitions, "read_uncommitted", shorter_s)
                raise RetriableError(
                    f"offsets of group {group} are part of an open transaction: the broker aborts "
                    "it after its producer's transaction.timeout.ms (60 s); try again then",
                    code="offsets_pending",
                ) from e
        return {
            TopicPartition(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None
            for tp in answered
        }

    def _offsets(
        self, group: str, client_partitions: list[ClientPartition], isolation: str, timeout_s: float
    ) -> list[ClientPartition]:
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
        settings = librdkafka_config(self._properties, "consumer", self._failures, **own)
        consumer = Consumer(settings)
        refused: list[KafkaError] = []

        def serve() -> None:
            message = consumer.poll(0)
            error = message.error() if message is not None else None
            if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                refused.append(error)

        try:
            answered = when_coordinated(
                lambda: unless_refused(
                    lambda part_s: consumer.committed(client_partitions, timeout=part_s),
                    timeout_s,
                    failures=self._failures,
                    serve=serve,
                )
            )
        except KafkaException:
            # a refused group is asked for again until the time is over; a message has the reason
            serve()
            if not refused:
                raise
            raise KafkaException(refused[0]) from None
        finally:
            consumer.poll(0)  # its callbacks
            consumer.close()
        for tp in answered:
            if tp.error is not None:
                raise KafkaException(tp.error)
        return list(answered)

    def members(self, group: str) -> list[str]:
        """Return client id and address of each member of a group; none if it does not exist."""
        return [f"{m.client_id} at {m.host.lstrip('/')}" for m in self._members(group)]

    def readers(self, group: str, topic: str) -> list[str]:
        """Return client id and address of each member that reads partitions of a topic."""
        return [
            f"{member.client_id} at {member.host.lstrip('/')}"
            for member in self._members(group)
            if any(tp.topic == topic for tp in member.assignment.topic_partitions)
        ]

    def refuse_members(self, group: str) -> None:
        """Check that a group has no members.

        Raises:
            RetriableError: ``group_in_use``.
        """
        if self._members(group):
            raise _in_use(group)

    def has_had_members(self, group: str) -> bool:
        """Return whether the group exists without members, and had consumers as members before.

        The broker deletes all offsets of such a group at once, ``offsets.retention.minutes`` after
        the last member left. The time of their commit does not matter.
        """
        described = self._described(group)
        is_simple = described is None or described.is_simple_consumer_group
        return not is_simple and not described.members

    def client_ids(self, group: str) -> frozenset[str]:
        """Return the client id of each member of a group; none if it does not exist."""
        return frozenset(str(member.client_id) for member in self._members(group))

    def _members(self, group: str) -> Collection[Any]:
        described = self._described(group)
        return [] if described is None else cast("Collection[Any]", described.members)

    def _described(self, group: str) -> Any:
        def ask(admin: AdminClient, timeout_s: float) -> Any:
            return admin.describe_consumer_groups([group], request_timeout=timeout_s)[group]

        needs = RequiredAcls(group=f"Describe on Group {group}")
        with mapped(f"describing group {group}", needs=needs, failures=self._failures):
            try:
                return self._coordinator.ask(ask)
            except KafkaException as e:
                if e.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise
                return None

    def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets of a group without members.

        Raises:
            RetriableError: ``group_in_use``.
        """
        request = ConsumerGroupTopicPartitions(group, to_client(offsets))

        def ask(admin: AdminClient, timeout_s: float) -> Any:
            return admin.alter_consumer_group_offsets([request], request_timeout=timeout_s)[group]

        topics = ", ".join(sorted({tp.topic for tp in offsets}))[:200]
        needs = RequiredAcls(topic=f"Read on Topic {topics}", group=f"Read on Group {group}")
        doing = f"altering offsets of group {group}"
        with (
            mapped(doing, needs=needs, failures=self._failures),
            _without_members(group),
        ):
            for tp in self._coordinator.ask(ask).topic_partitions:
                if tp.error is not None:
                    raise KafkaException(tp.error)

    def delete_group(self, group: str) -> None:
        """Delete a group and its offsets; no error if it does not exist.

        Raises:
            RetriableError: ``group_in_use``.
        """

        def ask(admin: AdminClient, timeout_s: float) -> Any:
            return admin.delete_consumer_groups([group], request_timeout=timeout_s)[group]

        needs = RequiredAcls(group=f"Delete on Group {group}")
        with (
            mapped(f"deleting group {group}", needs=needs, failures=self._failures),
            _without_members(group),
        ):
            try:
                self._coordinator.ask(ask)
            except KafkaException as e:
                if e.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise

    def _client(self) -> AdminClient:
        own = {"socket.timeout.ms": int(self._timeout_s * 1000)}
        with mapped("admin client"):
            settings = librdkafka_config(self._properties, "admin", self._failures, **own)
            return AdminClient(settings)


class CoordinatorClient:
    """An admin client that is replaced when an answer is overdue. Thread-safe.

    Two faults of librdkafka 2.16 make this necessary:

    - A client that sent a request while the broker was unavailable may wait for the answer forever,
      and all its later requests to the coordinator too. A new client gets an answer at once.
    - If librdkafka gives up a request while the coordinator is unavailable, it frees the request
      and sends it nevertheless when the coordinator is back. That ends the process
      (``rd_kafka_admin_coord_request`` returns an error, whose reply uses the freed ``eonce``).

    So librdkafka never gives up. This class has the time limit. When the replaced client ends, each
    of its requests is answered once.

    Args:
        connect: creates a client.
        timeout_s: until an answer is overdue, at most ``ANSWER_TIMEOUT_S``.
        failures: of the clients.
    """

    def __init__(
        self, connect: Callable[[], AdminClient], timeout_s: float, failures: ConnectionFailures
    ) -> None:
        self._connect = connect
        self._timeout_s = min(timeout_s, ANSWER_TIMEOUT_S)
        self._failures = failures
        self._lock = threading.Lock()
        self._client: AdminClient | None = None

    def ask(self, question: Callable[[AdminClient, float], Future[Any]]) -> Any:
        """Return the answer to one request, repeated while the coordinator is being found.

        Args:
            question: sends the request by a client, with the client's timeout in seconds.

        Raises:
            KafkaException: the coordinator's error; ``_TIMED_OUT`` if it does not answer.
        """
        return when_coordinated(lambda: self._once(question))

    def close(self) -> None:
        """End the client; requests that wait for it are answered."""
        with self._lock:
            self._client = None

    def _once(self, question: Callable[[AdminClient, float], Future[Any]]) -> Any:
        with self._lock:
            client = self._client = self._client or self._connect()
        answer = question(client, _CLIENT_TIMEOUT_S)
        try:
            return unless_refused(
                answer.result,
                self._timeout_s,
                failures=self._failures,
                serve=lambda: client.poll(0),
            )
        except TimeoutError:
            client.poll(0)  # its callbacks have the reason
            self._replace(client)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001 - public
        except KafkaException:
            if self._failures.is_refusal:
                self._replace(client)
            raise

    def _replace(self, client: AdminClient) -> None:
        with self._lock:
            # another thread may have replaced it already
            self._client = None if self._client is client else self._client


def when_coordinated(ask: Callable[[], Any]) -> Any:
    """Repeat a request while a group's coordinator is being found, moved or loaded."""
    return _while_moving(ask, _COORDINATOR_MOVES)


def when_led(ask: Callable[[], Any], find_leaders: Callable[[], object]) -> Any:
    """Repeat a request to the leaders of partitions while they are being found or moved.

    A broker describes a new partition before it leads it. librdkafka keeps what it knows of
    leaders, also of those that moved, until it asks for metadata again.

    Args:
        ask: sends the request.
        find_leaders: makes the client ask for metadata; raises if a partition does not exist.
    """
    return _while_moving(ask, _LEADER_MOVES, find_leaders)


def _while_moving(
    ask: Callable[[], Any], moves: Collection[int], again: Callable[[], object] = lambda: None
) -> Any:
    pause = threading.Event()
    for _ in range(MOVE_POLLS):
        try:
            return ask()
        except KafkaException as e:
            if e.args[0].code() not in moves:
                raise
            pause.wait(MOVE_PAUSE_S)
            again()
    return ask()


@contextlib.contextmanager
def _without_members(group: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as e:
        if e.args[0].code() not in _GROUP_HAS_MEMBERS:
            raise
        raise _in_use(group) from e


def _in_use(group: str) -> RetriableError:
    return RetriableError(
        f"consumer group {group} has members, so its offsets cannot be changed: stop the members "
        "and try again",
        code="group_in_use",
    )
