"""The Kafka admin client: topics and watermarks; consumer groups are in ``group_admin``."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from connect.errors import RetriableError
from connect.gateways.kafka.group_admin import GroupAdmin, when_led
from connect.gateways.kafka.kafka_clients import to_client
from connect.gateways.kafka.kafka_errors import (
    LOGIN_REFUSED,
    NO_ACLS,
    TLS_FAILED,
    UNAVAILABLE,
    RequiredAcls,
    mapped,
    unless_refused,
)
from connect.model.layout import TopicPartition

TOPIC_POLLS = 100
TOPIC_PAUSE_S = 0.05
_DENIED = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_REFUSALS = {
    *_DENIED,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_REPLICATION_FACTOR,  # also for a moment, while brokers start
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
}
_ABSENT = {KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION}  # noqa: SLF001 - public


class KafkaAdmin(GroupAdmin):
    """Requests about topics and consumer groups. Thread-safe; every call has a time limit."""

    def topics(self) -> dict[str, int]:
        """Return the partition count of every topic of the cluster."""
        listed = self._metadata("listing topics")
        return {
            name: len(topic.partitions)
            for name, topic in listed.topics.items()
            if topic.error is None
        }

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic in their order; none if it does not exist."""
        return [TopicPartition(topic, number) for number in range(self.topics().get(topic, 0))]

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return str(self._metadata("asking for the cluster's id").cluster_id)

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids (base64) of existing topics; a topic created again has a new id."""
        return self.request_topic_ids(names)()

    def request_topic_ids(self, names: Collection[str]) -> Callable[[], dict[str, str]]:
        """Send the request of ``topic_ids``; return a call that waits for its answer."""
        if not names:
            return dict
        listed = ", ".join(sorted(names))[:200]
        doing = f"describing topics {listed}", f"Describe on Topic {listed}"
        with self._mapped(*doing):
            futures = self._admin.describe_topics(
                TopicCollection(sorted(names)), request_timeout=self._timeout_s
            )

        def answer() -> dict[str, str]:
            out: dict[str, str] = {}
            with self._mapped(*doing):
                for name, future in futures.items():
                    try:
                        out[name] = str(self._result(future).topic_id)
                    except KafkaException as e:
                        if e.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                            raise
            return out

        return answer

    def topic_id(self, name: str) -> str | None:
        """Return the id of one topic; None if it does not exist."""
        return self.topic_ids([name]).get(name)

    def topic_config(self, name: str) -> dict[str, str]:
        """Return every configuration value of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        with self._mapped(
            f"reading configuration of topic {name}", f"DescribeConfigs on Topic {name}"
        ):
            entries = self._result(self._admin.describe_configs([resource])[resource])
        return {k: entry.value for k, entry in entries.items() if entry.value is not None}

    def ensure_topic(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        *,
        replication_factor: int = -1,
        replication_key: str = "",
        is_trial: bool = False,
    ) -> bool:
        """Create a topic if it does not exist; return whether it was created.

        Args:
            name: of the topic.
            partitions: how many.
            config: its settings.
            replication_factor: -1 is the broker's default.
            replication_key: of the configuration; errors name it if there are too few brokers.
            is_trial: only validate the request.

        Raises:
            RetriableError: ``topic_refused``, with the broker's reason, or ``broker_unavailable``.
        """
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
        )
        with self._mapped(f"creating topic {name}", f"Create on Topic {name}"):
            try:
                self._result(self._admin.create_topics([topic], validate_only=is_trial)[name])
            except KafkaException as e:
                if e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                if e.args[0].code() in _ABSENT and self.partitions(name):
                    return False
                if e.args[0].code() in _REFUSALS | _ABSENT:
                    raise _refused(name, e.args[0], replication_key) from e
                raise
        if not is_trial:
            self._wait_for(name)
        return True

    def _wait_for(self, name: str) -> None:
        """Wait until the brokers' metadata has a new topic."""
        pause = threading.Event()
        for _ in range(TOPIC_POLLS):
            if self.topic_id(name) is not None:
                return
            pause.wait(TOPIC_PAUSE_S)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete every record below these offsets, as retention does."""
        topics = ", ".join(sorted({tp.topic for tp in before}))[:200]
        with self._mapped("deleting records", f"Delete on Topic {topics}"):
            for future in self._admin.delete_records(to_client(before)).values():
                self._result(future)

    def watermarks(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return first offset and last stable offset (the end for read_committed) per partition.

        Raises:
            RetriableError: ``topic_missing`` when a partition does not exist.
        """
        starts = self._list_offsets(partitions, OffsetSpec.earliest())
        ends = self._list_offsets(partitions, OffsetSpec.latest())
        return {tp: (starts[tp], ends[tp]) for tp in partitions}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the last stable offset of each partition; half the cost of ``watermarks``."""
        return self._list_offsets(partitions, OffsetSpec.latest())

    def offsets_at(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """Return per partition the offset of the first record with this timestamp or a later one.

        A partition without such a record gets its last stable offset, where a consumer of
        ``offsetsForTimes`` continues.

        Raises:
            RetriableError: ``topic_missing`` when a partition does not exist.
        """
        offsets = self._list_offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))
        absent = [tp for tp, offset in offsets.items() if offset < 0]
        return {**offsets, **self.ends(absent)}

    def first_since(
        self, partitions: Collection[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record of each partition with this timestamp or later.

        None where no record has one. Open transactions are included.
        """
        spec = OffsetSpec.for_timestamp(timestamp_ms)
        offsets = self._list_offsets(partitions, spec, IsolationLevel.READ_UNCOMMITTED)
        return {tp: offset if offset >= 0 else None for tp, offset in offsets.items()}

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermark of each partition; above ``ends`` during a transaction."""
        return self._list_offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def _list_offsets(
        self,
        partitions: Collection[TopicPartition],
        spec: Any,
        isolation: Any = IsolationLevel.READ_COMMITTED,
    ) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        specs = {ClientPartition(tp.topic, tp.partition): spec for tp in partitions}
        topics = ", ".join(sorted({tp.topic for tp in partitions}))[:200]

        def ask() -> dict[TopicPartition, int]:
            out: dict[TopicPartition, int] = {}
            futures = self._admin.list_offsets(
                specs, isolation_level=isolation, request_timeout=self._timeout_s
            )
            for tp, future in futures.items():
                out[TopicPartition(tp.topic, tp.partition)] = self._result(future).offset
            return out

        def find_leaders() -> None:
            existing = self.topics()
            for tp in partitions:
                if tp.partition >= existing.get(tp.topic, 0):
                    raise RetriableError(
                        "the partition does not exist",
                        code="topic_missing",
                        topic=tp.topic,
                        partition=tp.partition,
                    )

        with self._mapped("listing offsets", f"Describe on Topic {topics}"):
            offsets: dict[TopicPartition, int] = when_led(ask, find_leaders)
        return offsets

    def committed_all(self, group: str) -> dict[TopicPartition, int]:
        """Return every committed offset of a group, for topics that exist.

        Raises:
            RetriableError: the broker is unavailable, or has no metadata of a topic. Callers delete
                the group and store what this method returned.
        """
        listed = self._metadata("listing topics")
        partitions = [
            TopicPartition(topic, number)
            for topic, count in partition_counts(listed.topics).items()
            for number in range(count)
        ]
        return {tp: at for tp, at in self.committed(group, partitions).items() if at is not None}

    @contextlib.contextmanager
    def _mapped(self, doing: str, topic_acl: str = "") -> Iterator[None]:
        """Map what the client raises; after a refused login the next request has a new client."""
        needs = RequiredAcls(topic=topic_acl) if topic_acl else NO_ACLS
        try:
            with mapped(
                doing, needs=needs, failures=self._failures, serve=lambda: self._admin.poll(0)
            ):
                yield
        except RetriableError as e:
            if e.code in {LOGIN_REFUSED, TLS_FAILED}:
                self._open = self._client()
            raise

    def _metadata(self, doing: str) -> Any:
        with self._mapped(doing):
            return unless_refused(
                lambda part_s: self._admin.list_topics(timeout=part_s),
                self._timeout_s,
                failures=self._failures,
                serve=lambda: self._admin.poll(0),
            )

    def _result(self, future: Future[Any]) -> Any:
        return unless_refused(
            future.result,
            self._timeout_s + 5,  # later than the client's own
            failures=self._failures,
            serve=lambda: self._admin.poll(0),
        )


def partition_counts(topics: Mapping[str, Any]) -> dict[str, int]:
    """Return the partition count of each topic of an answer, without topics that do not exist.

    Raises:
        RetriableError: ``broker_unavailable``: a topic has an error, so its partitions are unknown.
    """
    existing = {
        name: topic
        for name, topic in topics.items()
        if topic.error is None or topic.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART
    }
    for name, topic in existing.items():
        if topic.error is not None:
            raise RetriableError(
                f"the broker does not describe topic {name}: {topic.error.str()}; try again",
                code=UNAVAILABLE,
                topic=name,
            )
    return {name: len(topic.partitions) for name, topic in existing.items()}


def _refused(topic: str, error: KafkaError, replication_key: str) -> RetriableError:
    """Return the error of a topic that the broker does not create."""
    acl = f" (ACL Create on Topic {topic})" if error.code() in _DENIED else ""
    advice = "create it, or name another"
    if error.code() == KafkaError.INVALID_REPLICATION_FACTOR and replication_key:
        advice = f"set {replication_key} to at most the number of brokers"
    return RetriableError(
        f"the broker refuses to create topic {topic}: {error.str()}{acl}; {advice}",
        code="topic_refused",
    )
