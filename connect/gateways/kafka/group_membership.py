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

from connect.gateways.kafka.kafka_clients import librdkafka_config, mapped
from connect.logs import logger

POLL_S = 0.2
LEAVE_TIMEOUT_S = 5.0

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
        own: dict[str, Any] = {
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
        with mapped("group member"):
            self._consumer = Consumer(librdkafka_config(properties, "consumer", **own))
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)

    def start(self) -> None:
        """Join, and stay in the group."""
        self._thread.start()

    def leave(self) -> None:
        """Leave the group; the others know it at their next heartbeat. Bounded in time."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(LEAVE_TIMEOUT_S)

    def _run(self) -> None:
        with mapped("joining the group"):
            self._consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
        while not self._leaving.is_set():
            try:
                found = self._consumer.poll(POLL_S)
            except (KafkaException, SystemError) as e:
                self._on_refused(str(e))
                self._leaving.wait(POLL_S)
                continue
            if found is not None and found.error() is not None:
                self._failed(found.error())
        with contextlib.suppress(KafkaException, SystemError, RuntimeError):
            self._consumer.close()

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
            self._on_refused(error.str())
        else:
            _log.debug("group", error=error.str())

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        self._is_leading = self._is_leading or bool(partitions)
        self._on_membership(self._is_leading)

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_unassign(partitions)
        if partitions:
            self._is_leading = False
        self._on_membership(self._is_leading)
