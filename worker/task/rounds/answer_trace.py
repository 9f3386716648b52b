"""Collects the spans of a task's answer to a round, and sends them when it is announced.

Rules of this file:
- Nothing is collected unless the node exports traces.
- A batch that was read before the round requested an answer belongs to that answer.
- An announcement that answers no round has no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from connect.model.round_span import Attribute, RoundSpan, new_span_id, round_span_id
from worker.task.task_context import TaskSetup

WRITES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class _Step:
    """Part of an answer; milliseconds of the monotonic clock."""

    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(slots=True)
class AnswerTrace:
    """The trace of one task's next answer. Not thread-safe.

    Args:
        setup: the task.
    """

    setup: TaskSetup
    _writes: list[_Step] = field(default_factory=list, init=False)
    _write_count: int = field(default=0, init=False)
    _read_from_ms: int | None = field(default=None, init=False)

    @property
    def is_on(self) -> bool:
        """Whether spans are collected."""
        return self.setup.context.on_spans is not None

    def read_begins(self) -> None:
        """Note that the task reads to the end of the log, to answer a round."""
        if self.is_on:
            self._read_from_ms = self._now_ms()

    def wrote(self, records_max: int, *, started_ms: int) -> None:
        """Collect a span of one micro-batch, whose records became files just now.

        Args:
            records_max: number of its source offsets.
            started_ms: when its work began, monotonic clock.
        """
        if not self.is_on:
            return
        self._write_count += 1
        if len(self._writes) < WRITES_MAX:
            offsets = {"icefloe.offsets": records_max}
            self._writes.append(_Step("write", started_ms, self._now_ms(), offsets))

    def announced(
        self, commit_id: UUID | None, requested_ms: int | None, *, records: int, announce_ms: int
    ) -> None:
        """Send the spans of an answer that was announced just now.

        Args:
            commit_id: of the round that it answers; None if it answers none.
            requested_ms: when the round requested it, monotonic clock.
            records: source records that it announces.
            announce_ms: when the announcement began, monotonic clock.
        """
        writes, count, read_from_ms = self._writes, self._write_count, self._read_from_ms
        self._writes, self._write_count, self._read_from_ms = [], 0, None
        send = self.setup.context.on_spans
        if send is None or commit_id is None:
            return
        ended_ms = self._now_ms()
        steps = [*writes, _Step("announce", announce_ms, ended_ms)]
        if read_from_ms is not None:
            steps.insert(0, _Step("read", read_from_ms, announce_ms))
        start_ms = announce_ms if requested_ms is None else min(requested_ms, announce_ms)
        own = {"icefloe.records": records, "icefloe.batches": count}
        answer = self._span(
            _Step("answer", start_ms, ended_ms, own), commit_id, round_span_id(commit_id)
        )
        send([answer, *(self._span(step, commit_id, answer.span_id) for step in steps)])

    def _span(self, step: _Step, commit_id: UUID, parent_id: int) -> RoundSpan:
        setup = self.setup
        since_epoch_ms = setup.clock.now_ms() - self._now_ms()
        return RoundSpan(
            step.name,
            commit_id,
            new_span_id(setup.clock.new_uuid()),
            parent_id,
            since_epoch_ms + step.start_ms,
            since_epoch_ms + step.end_ms,
            {
                "icefloe.connector": setup.config.name,
                "icefloe.task": setup.assignment.task,
                "icefloe.commit_id": str(commit_id),
                **step.attributes,
            },
        )

    def _now_ms(self) -> int:
        return self.setup.clock.monotonic_ms()
