"""Start offsets of partitions that have no committed offset and were never read."""

from __future__ import annotations

from collections.abc import Mapping

from connect.config.start_position import EARLIEST, LATEST, StartPosition
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition


def first_offsets(
    start: StartPosition,
    logs: Mapping[TopicPartition, tuple[int, int]],
    *,
    fixed: Mapping[TopicPartition, int],
    admin: KafkaAdmin,
    now_ms: int,
) -> dict[TopicPartition, int]:
    """Return where these partitions start.

    The order is: an offset that ``icefloe.start.offsets`` names, an offset that the leader fixed,
    the reset policy. A named offset above the end of the log is the end. An offset below the start
    of the log is returned as it is, so that the check of the positions names the lost range.

    Args:
        start: the connector's settings.
        logs: the partitions, each with the start and the end of its log.
        fixed: start offsets that the leader has fixed (``SourceFloor.starts``).
        admin: resolves ``by_duration``.
        now_ms: wall clock.

    Raises:
        RetriableError: the broker does not answer.
    """
    offsets: dict[TopicPartition, int] = {}
    left = []
    for tp, (log_start, end) in logs.items():
        named = start.offsets.get(tp)
        if named is not None:
            offsets[tp] = {EARLIEST: log_start, LATEST: end}.get(named, min(named, end))
        elif tp in fixed:
            offsets[tp] = fixed[tp]
        elif start.reset == "by_duration":
            left.append(tp)
        else:
            offsets[tp] = end if start.reset == "latest" else log_start
    since_ms = max(0, now_ms - start.reset_duration_ms)
    return offsets | admin.offsets_at(left, since_ms)
