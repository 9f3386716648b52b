"""One round as the kernel keeps it, and what rounds are configured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from connect.model.layout import TopicPartition
from control_schemas.events import DataComplete, SourceRange
from coordinator.kernel.effects import TableCommit, TableCommitted, TableFailed

Identifier = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """What a kernel is configured with; all times in milliseconds.

    ``repeat_start_ms``: StartCommit is sent again, with the same id, to tasks that were not
    listening yet; a task that has answered ignores it. For the first ``new_layout_ms`` of a layout,
    when all of them begin anew, it is sent every ``repeat_quickly_ms``. ``ranges_from``: control
    partition -> control offset below which announced ranges are taken as they come.
    ``kept_bytes_max``: with more announcements kept than that, tasks are asked for no more.
    ``future_max_ms``: how far ahead of the coordinator's clock a task's timestamp may be; None
    believes any.
    """

    task_id: str
    commit_interval_ms: int
    commit_timeout_ms: int
    repeat_start_ms: int = 1_000
    repeat_quickly_ms: int = 200
    new_layout_ms: int = 5_000
    ranges_from: Mapping[int, int] = field(default_factory=dict)
    future_max_ms: int | None = None
    kept_bytes_max: int | None = None


@dataclass(slots=True)
class Round:
    """One round from its StartCommit to its completion; times of a monotonic clock.

    ``answered``: the partitions that ``completions`` cover.
    """

    commit_id: UUID
    started_ms: int
    repeated_ms: int
    completions: list[DataComplete] = field(default_factory=list)
    answered: set[TopicPartition] = field(default_factory=set)
    ranges: list[SourceRange] = field(default_factory=list)
    closed_at: Mapping[int, int] = field(default_factory=dict)
    is_partial: bool = False
    leaves_tables_out: bool = False
    valid_through_us: int | None = None
    expected: frozenset[TopicPartition] = frozenset()
    in_flight: dict[Identifier, TableCommit] = field(default_factory=dict)
    outcomes: list[TableCommitted | TableFailed] = field(default_factory=list)

    def add(self, completion: DataComplete) -> None:
        """Take an answer of this round."""
        self.completions.append(completion)
        self.answered.update(
            TopicPartition(a.topic, a.partition) for a in completion.assignments or ()
        )
