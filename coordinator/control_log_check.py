"""Whether the control topic is still the log that tables and group offsets refer to.

Rules of this file:
- A control offset is valid in one topic only. Another topic of the same name, an offset or a floor
  outside the topic's log, and a compacted topic each stop the connector: announcements may be
  missing, and only an operator can decide how to continue.
- A topic that the operator has given up (``icefloe control rebase``) no longer counts: floors of
  that time are not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from connect.errors import CommitRefused, ConfigError, DataLost, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import Layout, TopicPartition
from coordinator.kernel.effects import Envelope

RESET = "control_log_reset"
LOST = "control_log_lost"
COMPACTED = "control_log_compacted"
GROWN = "control_partitions_added"
ALARM_SHARE = 0.5  # of the retention that is left when an announcement becomes an alarm
NEAR_START_SHARE = 0.25
STOPS = frozenset({RESET, LOST})
REBASE = "icefloe control rebase says what to do"

log = structlog.get_logger("coordinator")


@dataclass(frozen=True, slots=True)
class ControlLogCheck:
    """One connector's control topic.

    Args:
        admin: the cluster, closed by the caller; None where only identities are compared.
        topic: its name.
        known_id: identity that the connector's layout remembers; None when it remembers none.
        abandoned: identities of topics of this name that the operator has given up.
        first_read: where reading begins for a group that has no control offsets; None when it has.
    """

    admin: KafkaAdmin | None
    topic: str
    known_id: str | None = None
    abandoned: frozenset[str] = frozenset()
    first_read: Mapping[int, int] | None = None

    @classmethod
    def of(cls, admin: KafkaAdmin, topic: str, layout: Layout) -> ControlLogCheck:
        """The control topic as a layout remembers it."""
        known_id = dict(layout.topic_ids).get(topic)
        return cls(admin, topic, known_id, frozenset(layout.abandoned))

    def check(self) -> str | None:
        """Check the topic as a whole; return its identity.

        Raises:
            DataLost: ``control_log_reset``, ``control_log_compacted``.
            RetriableError: the broker is away.
        """
        if self.admin is None:
            return None
        topic_id = self.admin.topic_id(self.topic)
        if None not in {topic_id, self.known_id} and topic_id != self.known_id:
            raise DataLost(
                f"control topic {self.topic} was deleted and created again: what was announced and "
                f"not committed is gone; {REBASE}",
                code=RESET,
                topic=self.topic,
                topic_id=self.known_id,
                present_topic_id=topic_id,
            )
        if topic_id is not None and "compact" in _cleanup_policy(self.admin, self.topic):
            raise DataLost(
                f"control topic {self.topic} is compacted: announcements may be missing; set its "
                f"cleanup.policy to delete, then {REBASE}",
                code=COMPACTED,
                topic=self.topic,
            )
        return topic_id

    def check_partitions(self, read: Collection[int]) -> None:
        """Make sure that every partition of the topic is among those that are read.

        Raises:
            RetriableError: ``control_partitions_added``: a coordinator that starts reads them from
                their beginning and claims no VTTS before; or the broker is away.
        """
        present = [] if self.admin is None else self.admin.partitions(self.topic)
        if new := {tp.partition for tp in present} - set(read):
            raise RetriableError(
                f"control topic {self.topic} has new partitions {sorted(new)}: starting over to "
                "read them, too",
                code=GROWN,
                topic=self.topic,
            )

    def retention(self, kept: Collection[Envelope], now_ms: int) -> dict[str, Any]:
        """How long the topic will hold the announcements that are in no table.

        Args:
            kept: these announcements.
            now_ms: wall clock, milliseconds.

        Returns:
            ``left_s``: seconds until the oldest one can be deleted by time, None where nothing is
            kept or the topic deletes nothing by time; ``message``: an alarm, None where there is
            time enough.

        Raises:
            RetriableError: the broker is away.
        """
        calm = {"left_s": None, "message": None}
        if not kept or self.admin is None:
            return calm
        settings = _settings(self.admin, self.topic)
        retention_ms = int(settings.get("retention.ms", "-1"))
        oldest_ms = min(envelope.event.timestamp_us for envelope in kept) // 1000
        left_ms = None if retention_ms < 0 else oldest_ms + retention_ms - now_ms
        alarms = []
        if left_ms is not None and left_ms < retention_ms * ALARM_SHARE:
            alarms.append(f"the topic deletes the oldest in {max(0, left_ms) // 60_000} minutes")
        if int(settings.get("retention.bytes", "-1")) >= 0:
            alarms += self._near_start(kept)
        if not alarms:
            return {**calm, "left_s": None if left_ms is None else left_ms / 1000}
        message = (
            f"{len(kept)} announcements in control topic {self.topic} are in no table, and "
            f"{'; '.join(alarms)}: repair what keeps them from being committed, or raise its "
            "retention.ms and retention.bytes"
        )
        log.error("announcements are about to be deleted", alarm=message)
        return {"left_s": None if left_ms is None else left_ms / 1000, "message": message}

    def _near_start(self, kept: Collection[Envelope]) -> list[str]:
        """Alarms about announcements in the oldest part of a topic that deletes by size."""
        assert self.admin is not None
        lowest: dict[int, int] = {}
        for envelope in kept:
            at = lowest.get(envelope.partition, envelope.offset)
            lowest[envelope.partition] = min(at, envelope.offset)
        marks = self.admin.watermarks([TopicPartition(self.topic, p) for p in lowest])
        return [
            f"partition {tp.partition} deletes by size from offset {start} on, the oldest "
            f"announcement is at {lowest[tp.partition]}"
            for tp, (start, end) in sorted(marks.items())
            if start and lowest[tp.partition] - start < (end - start) * NEAR_START_SHARE
        ]

    def is_of_former_topic(self, table_topic_id: str | None, topic_id: str | None) -> bool:
        """Whether a table's floors are of a topic that the operator has given up.

        Args:
            table_topic_id: what the table remembers; None where the Java sink wrote it.
            topic_id: the topic that is there.

        Raises:
            CommitRefused: ``control_log_reset``: of another topic that no operator has given up.
        """
        if topic_id is None or table_topic_id == topic_id:
            return False
        if table_topic_id in self.abandoned or (table_topic_id is None and self.abandoned):
            return True
        if table_topic_id is None:
            return False
        raise CommitRefused(
            f"the table was written from control topic {table_topic_id}; the topic of that name "
            f"is now {topic_id}; {REBASE}",
            code=RESET,
        )

    def check_floor(self, floor: Mapping[int, int]) -> None:
        """Make sure that the topic holds what a table says it has of it.

        Raises:
            CommitRefused: ``control_log_reset`` for a floor above the topic's end,
                ``control_log_lost`` for one below its start where no group offset tells that
                everything between is committed.
            RetriableError: the broker is away.
        """
        for partition, offset in sorted((self.first_read or {}).items()):
            if partition in floor and floor[partition] < offset:
                raise CommitRefused(
                    "the group has no control offsets, and control events "
                    f"{floor[partition]}..{offset - 1} are gone, announcements of this table "
                    f"perhaps among them; {REBASE}",
                    code=LOST,
                    partition=partition,
                )
        if not floor or self.admin is None:
            return
        ends = self.admin.high_watermarks([TopicPartition(self.topic, p) for p in sorted(floor)])
        for tp, end in ends.items():
            if floor[tp.partition] > end:
                raise CommitRefused(
                    f"the table has control offset {floor[tp.partition]}, but the control topic "
                    f"ends at {end}: it was re-created or truncated; {REBASE}",
                    code=RESET,
                    partition=tp.partition,
                )


def _cleanup_policy(admin: KafkaAdmin, topic: str) -> str:
    return _settings(admin, topic).get("cleanup.policy", "delete")


def _settings(admin: KafkaAdmin, topic: str) -> dict[str, str]:
    """The topic's settings; none without the right to read them."""
    try:
        return admin.topic_config(topic)
    except ConfigError as e:
        log.info("the control topic's settings cannot be read", topic=topic, error=str(e))
        return {}
