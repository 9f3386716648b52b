"""Allows one process per app id, in the whole Kafka cluster.

Rules of this file:
- The process that leads the group ``icefloe-ingest-<app_id>`` holds the app id. All others are
  refused. The group's assignor keeps the leader, so a second process never replaces the first.
- After a kill the broker excludes the dead member when its session times out. Joining takes as
  long.
- The lock is for a clear message. Exactly once does not depend on it: transactional ids do that.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping

from connect.errors import ConfigError, RetriableError
from connect.gateways.kafka.group_membership import GroupMember

SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_MS = 3_000
JOIN_TIMEOUT_S = 120.0


def lock_group(app_id: str) -> str:
    """Return the group whose leader holds an app id."""
    return f"icefloe-ingest-{app_id}"


class AppLock:
    """Membership of this process in the group of an app id.

    Args:
        properties: Java-named consumer properties.
        app_id: of the job.
        topic: of one partition; must exist.
        on_lost: called on another thread when another process has taken over the app id.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        app_id: str,
        topic: str,
        on_lost: Callable[[], None],
    ) -> None:
        self._app_id = app_id
        self._on_lost = on_lost
        self._answered = threading.Event()
        self._is_held = False
        self._losses = 0
        self._refusal: str | None = None
        self.is_lost = False
        self._member = GroupMember(
            properties,
            group_id=lock_group(app_id),
            topic=topic,
            name=f"{socket.gethostname()}-{os.getpid()}",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_ms=HEARTBEAT_MS,
            on_membership=self._changed,
            on_refused=self._refused,
        )

    def acquire(self, timeout_s: float = JOIN_TIMEOUT_S) -> None:
        """Join the group, and stay in it.

        Raises:
            ConfigError: ``app_id_in_use``: another process holds the app id.
            RetriableError: the broker did not answer in time.
        """
        self._member.start()
        is_answered = self._answered.wait(timeout_s)
        if self._is_held:
            return
        self._member.leave()
        if not is_answered:
            why = self._refusal or "the broker does not answer"
            raise RetriableError(
                f"cannot join the group {lock_group(self._app_id)}: {why}; check --kafka, and the "
                "permission to read this group"
            )
        raise ConfigError(
            f"another process ingests with the app id {self._app_id!r}, and one process reads all "
            "partitions with all cores. To use several machines, run nodes with one group.id and "
            "apply the connector (--print connector). To read another topic, set another --app_id",
            code="app_id_in_use",
        )

    def release(self) -> None:
        """Leave the group, so that the next process need not wait. Bounded in time."""
        self._member.leave()

    def _changed(self, is_leading: bool) -> None:
        if not self._answered.is_set():
            self._is_held = is_leading
            self._answered.set()
        elif is_leading:
            self._losses = 0
        else:
            # the session timed out, then the group has chosen another member
            self._losses += 1
            if self._is_held and self._losses > 1 and not self.is_lost:
                self.is_lost = True
                self._on_lost()

    def _refused(self, reason: str) -> None:
        self._refusal = reason
