"""The age from which files that are in no table may be removed while a connector runs.

Rules of this file:
- An announced file is in no table until its round is committed; for a failed table that may take
  days. Iceberg's ``remove_orphan_files`` removes it as an orphan as soon as it is old enough.
- The group's control offsets never pass an announcement that waits for a commit. The oldest one is
  at or above them. An announcement without a date counts as infinitely old.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.protocol.control_topic import ControlRecord, read_to_end
from control_schemas.events import DataWritten

_DAY_MS: Final = 86_400_000
AGE_MS_MIN: Final = 3 * _DAY_MS
"""Iceberg's own default for ``older_than``."""
MARGIN_MS: Final = _DAY_MS
"""A file is older than its announcement, by 20 hours at most: a task announces no older file."""


@dataclass(frozen=True, slots=True)
class OrphanAgeReport:
    """Age of files that may be removed while one connector runs.

    Attributes:
        oldest_announcement_ms: when the oldest announcement that waits was made, milliseconds
            since 1970 UTC; None when none waits.
        safe_age_ms: files younger than that must stay; None when the oldest one has no date.
    """

    oldest_announcement_ms: int | None
    safe_age_ms: int | None

    def as_json(self) -> Mapping[str, Any]:
        """Return the report as a JSON object."""
        return {
            "oldest_announcement_ms": self.oldest_announcement_ms,
            "safe_age_ms": self.safe_age_ms,
        }


def orphan_age(
    admin: KafkaAdmin, reader: LogReader, config: ConnectorConfig, clock: Clock
) -> OrphanAgeReport:
    """Read the announcements that wait on the control topic; return the age of an orphan.

    Args:
        admin: the cluster.
        reader: assigned to no partition; the caller closes it.
        config: the connector.
        clock: time.

    Raises:
        RetriableError: the broker is unavailable.
    """
    partitions = admin.partitions(config.control_topic)
    marks = admin.watermarks(partitions)
    committed = admin.committed(config.control_group_id, partitions)
    starts = {tp: min(max(committed[tp] or 0, low), end) for tp, (low, end) in marks.items()}
    ends = {tp: end for tp, (_, end) in marks.items()}
    created_ms = [
        at
        for record in read_to_end(reader, starts, ends, clock)
        if (at := _announced_ms(record, config.connect_group_id)) is not None
    ]
    return age_of(min(created_ms, default=None), now_ms=clock.now_ms())


def age_of(oldest_announcement_ms: int | None, *, now_ms: int) -> OrphanAgeReport:
    """Return the safe age for the time of the oldest announcement; 0 is an unknown date."""
    if oldest_announcement_ms is None:
        return OrphanAgeReport(None, AGE_MS_MIN)
    if not oldest_announcement_ms:
        return OrphanAgeReport(0, None)
    waits_ms = max(0, now_ms - oldest_announcement_ms)
    return OrphanAgeReport(oldest_announcement_ms, max(AGE_MS_MIN, waits_ms + MARGIN_MS))


def oldest_of(reports: Iterable[OrphanAgeReport], *, now_ms: int) -> OrphanAgeReport:
    """Return the report for a table that several connectors write to."""
    known = (r.oldest_announcement_ms for r in reports)
    return age_of(min((at for at in known if at is not None), default=None), now_ms=now_ms)


def _announced_ms(record: ControlRecord, group_id: str) -> int | None:
    """When files of the group were announced; 0 is an unknown date; None is no announcement."""
    if record.legacy is not None:
        return 0 if record.legacy.is_announcement and record.legacy.is_of(group_id) else None
    event = record.event
    if event is None or event.group_id != group_id or not isinstance(event.payload, DataWritten):
        return None
    return event.timestamp_us // 1_000
