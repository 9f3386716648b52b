"""The Kafka admin client: topics, watermarks, committed offsets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import Any, cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from connect.errors import RetriableError
from connect.gateways.kafka.group_coordinator import CoordinatorClient, when_coordinated
from connect.gateways.kafka.kafka_clients import (
    REQUEST_TIMEOUT_S,
    librdkafka_config,
    mapped,
    to_client,
)
from connect.model.layout import TopicPartition

PENDING_TIMEOUT_S = 10.0
TOPIC_LOOKS = 100
TOPIC_PAUSE_S = 0.05
_REFUSALS = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_REPLICATION_FACTOR,  # also for a moment, while brokers start
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_GROUP_HAS_MEMBERS = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.GROUP_SUBSCRIBED_TO_TOPIC,
}


class KafkaAdmin:
    """Questions to the cluster. Thread-safe; every call is bounded in time.

    Args:
        properties: Java-named client properties.
        timeout_s: for every call.
    """

    def __init__(
        self, properties: Mapping[str, str], *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self._properties = dict(properties)
        self._timeout_s = timeout_s
        self._admin = self._client()
        self._coordinator = CoordinatorClient(self._client, timeout_s)

    def topics(self) -> dict[str, int]:
        """Partition count of every topic of the cluster."""
        with mapped("listing topics"):
            listed = self._admin.list_topics(timeout=self._timeout_s)
        return {
            name: len(topic.partitions)
            for name, topic in listed.topics.items()
            if topic.error is None
        }

    def cluster_id(self) -> str:
        """Identity of the cluster."""
        with mapped("asking for the cluster's id"):
            return str(self._admin.list_topics(timeout=self._timeout_s).cluster_id)

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Identities of topics (base64), which re-created ones do not share; no absent ones."""
        if not names:
            return {}
        out: dict[str, str] = {}
        with mapped(f"describing topics {', '.join(sorted(names))[:200]}"):
            futures = self._admin.describe_topics(
                TopicCollection(sorted(names)), request_timeout=self._timeout_s
            )
            for name, future in futures.items():
                try:
                    out[name] = str(self._result(future).topic_id)
                except KafkaException as e:
                    if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
        return out

    def topic_id(self, name: str) -> str | None:
        """Identity of one topic; None if absent."""
        return self.topic_ids([name]).get(name)

    def topic_config(self, name: str) -> dict[str, str]:
        """Every configuration value of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        with mapped(f"reading configuration of topic {name}"):
            entries = self._result(self._admin.describe_configs([resource])[resource])
        return {k: entry.value for k, entry in entries.items() if entry.value is not None}

    def ensure_topic(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
        is_trial: bool = False,
    ) -> bool:
        """Create a topic unless it is there; True when it was created.

        Args:
            name: of the topic.
            partitions: how many.
            config: its settings.
            replication_factor: -1 is the broker's default.
            is_trial: only ask whether the broker would.

        Raises:
            RetriableError: ``topic_refused``, with the broker's reason, or ``broker_unavailable``.
        """
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
        )
        with mapped(f"creating topic {name}"):
            try:
                self._result(self._admin.create_topics([topic], validate_only=is_trial)[name])
            except KafkaException as e:
                if e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                if e.args[0].code() in _REFUSALS:
                    raise RetriableError(
                        f"the broker refuses to create topic {name}: {e.args[0].str()}; "
                        "create it, or name another",
                        code="topic_refused",
                    ) from e
                raise
        if not is_trial:
            self._wait_for(name)
        return True

    def _wait_for(self, name: str) -> None:
        """Until brokers tell of a new topic; a little later they do, and nobody else asks."""
        pause = threading.Event()
        for _ in range(TOPIC_LOOKS):
            if self.topic_id(name) is not None:
                return
            pause.wait(TOPIC_PAUSE_S)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        with mapped(f"deleting topic {name}"):
            self._result(self._admin.delete_topics([name])[name])

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete every record below these offsets, as retention does."""
        with mapped("deleting records"):
            for future in self._admin.delete_records(to_client(before)).values():
                self._result(future)

    def watermarks(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First retained offset and last stable offset (the end for read_committed) of each.

        Raises:
            RetriableError: ``topic_missing`` when a partition does not exist.
        """
        starts = self._list_offsets(partitions, OffsetSpec.earliest())
        ends = self._list_offsets(partitions, OffsetSpec.latest())
        return {tp: (starts[tp], ends[tp]) for tp in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Last stable offset of each partition; half the cost of ``watermarks``."""
        return self._list_offsets(partitions, OffsetSpec.latest())

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """End of each log with open transactions; above ``ends`` while one holds readers back."""
        return self._list_offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def _list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: Any,
        isolation: Any = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        asked = {ClientPartition(tp.topic, tp.partition): spec for tp in partitions}
        out: dict[TopicPartition, int] = {}
        with mapped("listing offsets"):
            futures = self._admin.list_offsets(
                asked,
                isolation_level=isolation,
                request_timeout=self._timeout_s,
            )
            for tp, future in futures.items():
                try:
                    out[TopicPartition(tp.topic, tp.partition)] = self._result(future).offset
                except KafkaException as e:
                    if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    raise RetriableError(
                        "the partition does not exist",
                        code="topic_missing",
                        topic=tp.topic,
                        partition=tp.partition,
                    ) from e
        return out

    def committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Committed offset of each partition, None where the group has none.

        Offsets of a transaction that is being ended are waited for. A consumer asks, not the admin
        client: on that one librdkafka 2.16.0 dereferences a null pointer when the answer is that
        the group's coordinator has moved or is loading (``rd_kafka_handle_OffsetFetch``).

        Raises:
            RetriableError: the broker is away; ``offsets_pending``: a transaction that somebody
                left open holds offsets.
        """
        if not partitions:
            return {}
        asked = [ClientPartition(tp.topic, tp.partition) for tp in partitions]
        with mapped(f"reading offsets of group {group}"):
            try:
                # this isolation makes the request ask for stable offsets
                found = self._offsets(group, asked, "read_committed", self._timeout_s)
            except KafkaException as e:
                if e.args[0].code() != KafkaError._TIMED_OUT:  # noqa: SLF001 - the public name
                    raise
                shorter_s = min(PENDING_TIMEOUT_S, self._timeout_s)
                self._offsets(group, asked, "read_uncommitted", shorter_s)
                raise RetriableError(
                    f"offsets of group {group} are part of a transaction that nobody has ended: "
                    "the broker does, after its producer's transaction.timeout.ms (60 s)",
                    code="offsets_pending",
                ) from e
        return {
            TopicPartition(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None
            for tp in found
        }

    def _offsets(
        self, group: str, asked: list[ClientPartition], isolation: str, timeout_s: float
    ) -> list[ClientPartition]:
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
        consumer = Consumer(librdkafka_config(self._properties, "consumer", **own))
        try:
            found = when_coordinated(lambda: consumer.committed(asked, timeout=timeout_s))
        finally:
            consumer.close()
        for tp in found:
            if tp.error is not None:
                raise KafkaException(tp.error)
        return list(found)

    def committed_all(self, group: str) -> dict[TopicPartition, int]:
        """Every committed offset of a group, of topics that exist."""
        partitions = [
            TopicPartition(topic, number)
            for topic, count in self.topics().items()
            for number in range(count)
        ]
        return {tp: at for tp, at in self.committed(group, partitions).items() if at is not None}

    def members(self, group: str) -> list[str]:
        """Client id and address of each member of a group; none when it is not there."""
        return [f"{m.client_id} at {m.host.lstrip('/')}" for m in self._members(group)]

    def refuse_members(self, group: str) -> None:
        """Return when a group has no members.

        Raises:
            RetriableError: ``group_in_use``.
        """
        if self._members(group):
            raise _in_use(group)

    def has_had_members(self, group: str) -> bool:
        """Whether the group is there without members, and consumers were members of it before.

        The broker forgets all offsets of such a group at once, ``offsets.retention.minutes`` after
        the last member left, whenever they were stored.
        """
        described = self._described(group)
        is_simple = described is None or described.is_simple_consumer_group
        return not is_simple and not described.members

    def client_ids(self, group: str) -> frozenset[str]:
        """Client id of each member of a group; none when it is not there."""
        return frozenset(str(member.client_id) for member in self._members(group))

    def _members(self, group: str) -> Collection[Any]:
        described = self._described(group)
        return [] if described is None else cast("Collection[Any]", described.members)

    def _described(self, group: str) -> Any:
        def ask(admin: AdminClient, timeout_s: float) -> Any:
            return admin.describe_consumer_groups([group], request_timeout=timeout_s)[group]

        with mapped(f"describing group {group}"):
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

        with mapped(f"altering offsets of group {group}"), _without_members(group):
            for tp in self._coordinator.ask(ask).topic_partitions:
                if tp.error is not None:
                    raise KafkaException(tp.error)

    def delete_group(self, group: str) -> None:
        """Forget a group and its offsets; no error when it is not there.

        Raises:
            RetriableError: ``group_in_use``.
        """

        def ask(admin: AdminClient, timeout_s: float) -> Any:
            return admin.delete_consumer_groups([group], request_timeout=timeout_s)[group]

        with mapped(f"deleting group {group}"), _without_members(group):
            try:
                self._coordinator.ask(ask)
            except KafkaException as e:
                if e.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                    raise

    def close(self) -> None:
        """Let go of the connections."""
        self._admin.poll(0)

    def _client(self) -> AdminClient:
        own = {"socket.timeout.ms": int(self._timeout_s * 1000)}
        with mapped("admin client"):
            return AdminClient(librdkafka_config(self._properties, "admin", **own))

    def _result(self, future: Future[Any]) -> Any:
        return cast("Any", future.result(self._timeout_s + 5))


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
        f"consumer group {group} has members: its offsets cannot be changed while others "
        "consume with it; end them and try again",
        code="group_in_use",
    )
