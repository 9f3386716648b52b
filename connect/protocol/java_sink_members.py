"""Tasks of the Java sink that ran, or run, for a connector: their membership and their offsets.

Rules of this file:
- Icefloe's tasks and coordinators are in no group, so every member belongs to another sink.
- No task starts while the group has a member. The Java sink has random transactional ids, which
  cannot be fenced. But it commits source offsets as a member of the group. Once the broker has
  removed the member, it refuses all its transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.model.layout import TopicPartition

POLL_MS = 500
LEAVE_TIMEOUT_MS = 60_000
"""Longer than the session of a consumer that was killed: 45 s by default."""

GROUP_IN_USE = "group_in_use"
"""Code of a wait that timed out. It is repeated at once, because the wait itself takes a while."""

_log = logger("predecessors")


class Waiting(Protocol):
    """A task or coordinator that starts, and may be requested to stop meanwhile."""

    @property
    def is_stopping(self) -> bool:
        """Whether it was requested to stop."""
        ...

    def pause(self, duration_ms: int) -> None:
        """Wait; return early when requested to stop."""
        ...


def wait_until_left(
    admin: KafkaAdmin,
    groups: Collection[str],
    owner: Waiting,
    clock: Clock,
    waits_for: Callable[[str], None] = lambda _: None,
) -> None:
    """Return once none of the groups has a member, or when requested to stop.

    Args:
        admin: the cluster.
        groups: consumer groups that only this connector may use.
        owner: the task or coordinator that waits.
        clock: monotonic time.
        waits_for: called with what is waited for, when that changes.

    Raises:
        RetriableError: ``group_in_use``, with the address of a member that is still alive.
    """
    deadline_ms = clock.monotonic_ms() + LEAVE_TIMEOUT_MS
    has_reported = False
    while not owner.is_stopping:
        members = _members(admin, groups)
        if not members:
            return
        group, present = next(iter(members.items()))
        if clock.monotonic_ms() >= deadline_ms:
            raise _in_use(group, present)
        waits_for(
            f"{len(present)} members of consumer group {group} to leave, the first is {present[0]}"
        )
        if not has_reported:
            _log.warning(
                "waiting for another sink to leave",
                group=group,
                members=len(present),
                first=present[0],
            )
            has_reported = True
        owner.pause(POLL_MS)


def refuse_members(admin: KafkaAdmin, groups: Collection[str]) -> None:
    """Check that none of the groups has a member, without a wait.

    Raises:
        RetriableError: ``group_in_use``, with the address of a member.
    """
    for group, present in _members(admin, groups).items():
        raise _in_use(group, present)


def _members(admin: KafkaAdmin, groups: Collection[str]) -> dict[str, list[str]]:
    return {group: present for group in groups if (present := admin.members(group))}


def _in_use(group: str, present: list[str]) -> RetriableError:
    return RetriableError(
        f"another sink still runs for this connector: consumer group {group} has "
        f"{len(present)} members, first {present[0]}; stop that sink",
        code=GROUP_IN_USE,
    )


def committed_offsets(
    admin: KafkaAdmin, config: ConnectorConfig, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Return committed source offsets; if missing, those of the older sink's second group."""
    committed = admin.committed(config.connect_group_id, partitions)
    missing = [tp for tp, at in committed.items() if at is None]
    if missing and config.fallback_group_id is not None:
        committed |= admin.committed(config.fallback_group_id, missing)
    return committed
