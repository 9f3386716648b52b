"""Collects the spans of a connector's commit rounds, and sends them when a round ends.

Rules of this file:
- The kernel has no part in tracing: the shell around it reports what it does.
- Nothing is collected unless the node exports traces.
- A round that is given up, because the layout changed, sends no span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from connect.clock import Clock
from connect.model.round_span import Attribute, RoundSpan, new_span_id, round_span_id
from coordinator.kernel.effects import (
    CommitOutcome,
    CoordinatorFenced,
    RoundEnded,
    TableCommit,
    TableCommitted,
    TableFailed,
)

TABLES_MAX: Final = 200

OnSpans = Callable[[Sequence[RoundSpan]], None]


@dataclass(slots=True)
class _OpenRound:
    """The present round.

    Attributes:
        commit_id: the round.
        started_ms: wall clock.
        spans: of what has ended.
        waits_from_ms: since when it waits for the tasks; None while it does not.
        commits_from_ms: when its commits began.
        tables: number of tables whose commit has ended.
    """

    commit_id: UUID
    started_ms: int
    spans: list[RoundSpan] = field(default_factory=list)
    waits_from_ms: int | None = None
    commits_from_ms: int = 0
    tables: int = 0


class RoundTrace:
    """The trace of one connector's present round. Used by the coordinator's thread only.

    Args:
        connector: name of the connector.
        clock: time and ids.
        on_spans: receives the spans of each round; None collects nothing.
    """

    def __init__(self, connector: str, clock: Clock, on_spans: OnSpans | None) -> None:
        self._connector = connector
        self._clock = clock
        self._on_spans = on_spans
        self._open: _OpenRound | None = None

    @contextmanager
    def step(self, name: str, commit_id: UUID) -> Iterator[None]:
        """Collect a span around a block: ``start commit`` or ``complete``."""
        if self._on_spans is None:
            yield
            return
        current, started_ms = self._of(commit_id), self._clock.now_ms()
        if name == "complete":
            self._end_wait(current, started_ms)
        yield
        ended_ms = self._clock.now_ms()
        self._add(current, name, started_ms, ended_ms)
        if name == "start commit" and current.waits_from_ms is None:
            current.waits_from_ms = ended_ms

    def commits_begin(self, commits: Sequence[TableCommit]) -> None:
        """Note that the answers of the tasks are there, and the tables are committed."""
        if self._on_spans is not None and commits:
            current, now_ms = self._of(commits[0].commit_id), self._clock.now_ms()
            self._end_wait(current, now_ms)
            current.commits_from_ms = now_ms

    def committed(self, outcome: CommitOutcome) -> None:
        """Collect the span of one table's commit, which has ended just now."""
        if self._on_spans is None:
            return
        current, now_ms = self._of(outcome.commit_id), self._clock.now_ms()
        current.tables += 1
        if current.tables > TABLES_MAX:
            return
        attributes: dict[str, Attribute] = {"icefloe.table": str(outcome.table)}
        started_ms, code = current.commits_from_ms, None
        match outcome:
            case TableCommitted():
                attributes |= {"icefloe.files": outcome.files, "icefloe.records": outcome.records}
                started_ms = max(started_ms, now_ms - outcome.duration_ms)
            case TableFailed():
                code = outcome.code
            case CoordinatorFenced():
                code = "floor_moved"
        self._add(current, "commit table", started_ms, now_ms, attributes=attributes, code=code)

    def ended(self, ended: RoundEnded) -> None:
        """Send the spans of a round that has ended."""
        self._send(
            ended.commit_id,
            {
                "icefloe.partial": ended.is_partial,
                "icefloe.tables": len(ended.outcomes),
                "icefloe.records": sum(r.records_read for r in ended.ranges),
            },
        )

    def failed(self, code: str) -> None:
        """Send the spans of a round that an error has ended; does nothing without a round."""
        if self._open is not None:
            self._send(self._open.commit_id, {"icefloe.tables": self._open.tables}, code)

    def _send(
        self, commit_id: UUID, attributes: Mapping[str, Attribute], code: str | None = None
    ) -> None:
        if self._on_spans is None:
            return
        current = self._of(commit_id)
        self._open = None
        span = RoundSpan(
            "round",
            commit_id,
            round_span_id(commit_id),
            None,
            current.started_ms,
            self._clock.now_ms(),
            {**self._names(commit_id), **attributes},
            code,
        )
        self._on_spans([span, *current.spans])

    def _of(self, commit_id: UUID) -> _OpenRound:
        if self._open is None or self._open.commit_id != commit_id:
            self._open = _OpenRound(commit_id, self._clock.now_ms())
        return self._open

    def _end_wait(self, current: _OpenRound, now_ms: int) -> None:
        if current.waits_from_ms is not None:
            self._add(current, "wait for tasks", current.waits_from_ms, now_ms)
            current.waits_from_ms = None

    def _add(
        self,
        current: _OpenRound,
        name: str,
        start_ms: int,
        end_ms: int,
        *,
        attributes: Mapping[str, Attribute] | None = None,
        code: str | None = None,
    ) -> None:
        current.spans.append(
            RoundSpan(
                name,
                current.commit_id,
                new_span_id(self._clock.new_uuid()),
                round_span_id(current.commit_id),
                start_ms,
                end_ms,
                {**self._names(current.commit_id), **(attributes or {})},
                code,
            )
        )

    def _names(self, commit_id: UUID) -> dict[str, Attribute]:
        return {"icefloe.connector": self._connector, "icefloe.commit_id": str(commit_id)}
