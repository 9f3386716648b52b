"""Membership of this process in a group, by Kafka's classic group protocol.

Rules of this file:
- Every member subscribes to one topic of one partition; the assigned member leads. No record is
  read from it. The sticky assignor keeps the leader while other members join and leave.
- The name under which members know each other is their client id.
- A frozen process learns of its exclusion when it continues to run: its actions until then must be
  fenced by other means.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from connect.errors import ConfigError, RetriableError
from connect.gateways.kafka.kafka_clients import librdkafka_config
from connect.gateways.kafka.kafka_errors import ConnectionFailures, mapped
from connect.gateways.kafka.kafka_login import librdkafka_login
from connect.gateways.kafka.key_stores import versions
from connect.logs import logger

POLL_S = 0.2
LEAVE_TIMEOUT_S = 5.0
RECONNECT_PAUSE_S = 1.0
CHECKS_AFTER_REFUSAL = 60  # librdkafka reports a repeated refusal every 30 s only

_ACLS = {
    KafkaError.GROUP_AUTHORIZATION_FAILED: "; the consumer's principal needs the ACL "
    "Read on Group {group}",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "; the consumer's principal needs the ACL "
    "Read on Topic {topic}",
}
_log = logger("group")


def _consumer(settings: dict[str, Any]) -> Any:
    return Consumer(settings)


@dataclass(frozen=True, slots=True)
class _Client:
    """Kafka's consumer, and what its connections have reported."""

    consumer: Any
    failures: ConnectionFailures


class GroupMember:
    """This process in the group.

    Args:
        properties: Java-named consumer properties.
        group_id: the group.
        topic: of one partition; must exist.
        name: what the others see as this member's client id.
        session_timeout_ms: a member without a heartbeat for this long is excluded.
        heartbeat_ms: interval of heartbeats; also how soon others notice that a member has left.
        on_membership: called on a thread of the member after every change of the group with
            whether this member leads; must not block.
        on_refused: called there when the group does not take this member, with the reason.
        make_client: makes Kafka's consumer from librdkafka's properties.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        group_id: str,
        topic: str,
        name: str,
        session_timeout_ms: int,
        heartbeat_ms: int,
        on_membership: Callable[[bool], None],
        on_refused: Callable[[str], None],
        make_client: Callable[[dict[str, Any]], Any] = _consumer,
    ) -> None:
        self._properties = properties
        self._own: dict[str, Any] = {
            "group.id": group_id,
            "client.id": name,
            "group.protocol": "classic",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": heartbeat_ms,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
        }
        self._topic = topic
        self._on_membership = on_membership
        self._on_refused = on_refused
        self._make_client = make_client
        self._is_leading = False
        self._leaving = threading.Event()
        self._checks_left = 0
        self._version = self._latest_version()
        self._client = self._connected(self._version[0])
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)

    def start(self) -> None:
        """Join, and stay in the group."""
        self._thread.start()

    def leave(self) -> None:
        """Leave the group; the others know it at their next heartbeat. Bounded in time."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(LEAVE_TIMEOUT_S)

    def _latest_version(self) -> tuple[dict[str, str], object]:
        """Return the properties of now, and the versions of their files.

        It is asked before a client reads them: a file may be replaced meanwhile.
        """
        latest = dict(self._properties)
        return latest, versions(latest)

    def _connected(self, properties: Mapping[str, str]) -> _Client:
        failures = ConnectionFailures()  # the last client may still report its own
        with mapped("group member"):
            settings = librdkafka_config(properties, "consumer", failures, **self._own)
            return _Client(self._make_client(settings), failures)

    def _subscribe(self) -> None:
        with mapped("joining the group"):
            self._client.consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )

    def _run(self) -> None:
        self._subscribe()
        while not self._leaving.is_set():
            try:
                self._poll()
            except RetriableError as e:
                self._on_refused(e.message)
                self._checks_left = CHECKS_AFTER_REFUSAL
            except (KafkaException, SystemError) as e:
                self._on_refused(str(e))
                self._leaving.wait(POLL_S)
            if self._checks_left:
                self._checks_left -= 1
                self._leaving.wait(RECONNECT_PAUSE_S)
                self._connect_again()
        self._close(self._client.consumer)

    def _poll(self) -> None:
        message = self._client.consumer.poll(POLL_S)
        if message is None:
            self._client.failures.raise_refusal("joining the group")
        elif message.error() is not None:
            self._failed(message.error())

    def _connect_again(self) -> None:
        """Take the login or the certificate that has replaced a refused one, if any.

        What cannot be used is tried again with the next check.
        """
        latest = self._latest_version()
        if self._leaving.is_set() or latest == self._version:
            return
        try:
            self._take(*latest)
        except (ConfigError, RetriableError) as e:
            self._on_refused(e.message)
        except (KafkaException, SystemError) as e:
            self._on_refused(str(e))
        else:
            self._version = latest

    def _take(self, properties: Mapping[str, str], files: object) -> None:
        """Keep the place in the group with a new password; join again with anything else."""
        login = librdkafka_login(properties)
        if "sasl.username" in login and files == self._version[1]:
            self._client.consumer.set_sasl_credentials(
                login["sasl.username"], login["sasl.password"]
            )
            return
        connected = self._connected(properties)
        self._close(self._client.consumer)
        self._client = connected
        if self._is_leading:  # its consumer has not left yet
            self._is_leading = False
            self._on_membership(self._is_leading)
        self._subscribe()

    def _close(self, consumer: Any) -> None:
        """Leave the group with a consumer.

        The client may wait for a broker that refuses it, so this waits ``LEAVE_TIMEOUT_S`` at most.
        """

        def close() -> None:
            with contextlib.suppress(KafkaException, SystemError, RuntimeError):
                consumer.close()

        closing = threading.Thread(target=close, name="group-leave", daemon=True)
        closing.start()
        closing.join(LEAVE_TIMEOUT_S)

    def _failed(self, error: KafkaError) -> None:
        if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            self._on_refused(
                "its members are of another kind, such as Java's Kafka Connect workers"
            )
        elif error.code() in {
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.INVALID_SESSION_TIMEOUT,
        }:
            acl = _ACLS.get(error.code(), "").format(group=self._own["group.id"], topic=self._topic)
            self._on_refused(error.str() + acl)
        else:
            _log.debug("group", error=error.str())

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        if consumer is not self._client.consumer:
            return
        self._checks_left = 0
        self._is_leading = self._is_leading or bool(partitions)
        self._on_membership(self._is_leading)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_unassign(partitions)
        if consumer is not self._client.consumer:  # it leaves later than its successor joins
            return
        if partitions:
            self._is_leading = False
        self._on_membership(self._is_leading)
