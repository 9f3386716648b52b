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


class GroupMember:
    """This process in the group.

    Args:
        properties: Java-named consumer properties.
        group_id: the group.
        topic: of one partition; must exist.
        name: what the others see as this member's client id.
        session_timeout_ms: a member without a heartbeat for this long is excluded.
        heartbeat_ms: interval of heartbeats; also how soon others notice that a member has left.
        on_membership: called on the member's own thread after every change of the group with
            whether this member leads; must not block.
        on_refused: called there when the group does not take this member, with the reason.
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
        self._is_leading = False
        self._leaving = threading.Event()
        self._failures = ConnectionFailures()
        self._checks_left = 0
        self._version: tuple[Mapping[str, str], object] = ({}, ())
        self._consumer = self._connected()
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)

    def start(self) -> None:
        """Join, and stay in the group."""
        self._thread.start()

    def leave(self) -> None:
        """Leave the group; the others know it at their next heartbeat. Bounded in time."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(LEAVE_TIMEOUT_S)

    def _connected(self) -> Any:
        latest = dict(self._properties)
        self._failures = ConnectionFailures()  # the last client may still report its own
        with mapped("group member"):
            consumer = Consumer(librdkafka_config(latest, "consumer", self._failures, **self._own))
        self._version = (latest, versions(latest))
        return consumer

    def _subscribe(self) -> None:
        with mapped("joining the group"):
            self._consumer.subscribe(
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
                self._connect_again()
        with contextlib.suppress(KafkaException, SystemError, RuntimeError):
            self._consumer.close()

    def _poll(self) -> None:
        message = self._consumer.poll(POLL_S)
        if message is None:
            self._failures.raise_refusal("joining the group")
        elif message.error() is not None:
            self._failed(message.error())

    def _connect_again(self) -> None:
        """Take the login or the certificate that has replaced a refused one, if any.

        With a new password the member keeps its place in the group. Otherwise it joins again.
        """
        self._leaving.wait(RECONNECT_PAUSE_S)
        latest = dict(self._properties)
        version = (latest, versions(latest))
        if self._leaving.is_set() or version == self._version:
            return
        try:
            login = librdkafka_login(latest)
            if "sasl.username" in login and version[1] == self._version[1]:
                self._consumer.set_sasl_credentials(login["sasl.username"], login["sasl.password"])
                self._version = version
                return
            connected = self._connected()
        except (ConfigError, RetriableError) as e:
            self._on_refused(e.message)
            return
        with contextlib.suppress(KafkaException, SystemError, RuntimeError):
            self._consumer.close()
        self._consumer = connected
        self._subscribe()

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
        self._checks_left = 0
        self._is_leading = self._is_leading or bool(partitions)
        self._on_membership(self._is_leading)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_unassign(partitions)
        if partitions:
            self._is_leading = False
        self._on_membership(self._is_leading)
