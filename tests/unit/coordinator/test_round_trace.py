"""The spans that a coordinator sends for a round."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from connect.clock import SystemClock
from connect.model.round_span import RoundSpan, round_span_id
from control_schemas.events import TableReference
from coordinator.kernel.effects import RoundEnded, TableCommit, TableCommitted, TableFailed
from coordinator.round_trace import TABLES_MAX, RoundTrace

COMMIT_ID = UUID("0b54a2b7-9d0c-4c9a-8f2e-51a6d1a0c3e4")
OTHER_ID = UUID("0b54a2b7-9d0c-4c9a-8f2e-51a6d1a0c3e5")


class Steps(SystemClock):
    """Each call of the wall clock is a second later."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        """Milliseconds."""
        self.now += 1_000
        return self.now


def table(number: int) -> TableReference:
    return TableReference("", ("db",), f"t{number}")


def ended(commit_id: UUID, outcomes: tuple[TableCommitted, ...] = ()) -> RoundEnded:
    return RoundEnded(
        commit_id, 0, 9, is_partial=False, valid_through_us=None, outcomes=outcomes, ranges=()
    )


def traced(tables: int) -> list[RoundSpan]:
    """The spans of a whole round, in which the last table fails."""
    sent: list[RoundSpan] = []
    trace = RoundTrace("c", Steps(), sent.extend)
    with trace.step("start commit", COMMIT_ID):
        pass
    commits = [TableCommit(table(n), COMMIT_ID, (), {}, None, "c-0") for n in range(tables)]
    trace.commits_begin(commits)
    for n in range(tables - 1):
        trace.committed(TableCommitted(table(n), COMMIT_ID, 1, files=2, records=3, duration_ms=500))
    trace.committed(
        TableFailed(table(tables), COMMIT_ID, "table_missing", "gone", is_retriable=False)
    )
    with trace.step("complete", COMMIT_ID):
        pass
    assert not sent
    outcomes = tuple(TableCommitted(table(n), COMMIT_ID, 1) for n in range(tables))
    trace.ended(ended(COMMIT_ID, outcomes))
    return sent


def test_a_round_is_one_trace() -> None:
    """Start, wait, a commit for each table, completion: in order, below the round's own span."""
    root, *steps = traced(2)
    assert (root.name, root.parent_id) == ("round", None)
    assert root.span_id == round_span_id(COMMIT_ID)
    assert [step.name for step in steps] == [
        *("start commit", "wait for tasks", "commit table", "commit table", "complete")
    ]
    assert {step.parent_id for step in steps} == {root.span_id}
    assert len({step.span_id for step in steps}) == len(steps)
    start, wait, committed, failed, complete = steps
    assert root.start_ms <= start.start_ms <= start.end_ms == wait.start_ms <= wait.end_ms
    assert committed.end_ms - committed.start_ms == 500
    assert committed.attributes["icefloe.table"] == "db.t0"
    assert (failed.error_code, failed.start_ms) == ("table_missing", wait.end_ms)
    assert complete.end_ms <= root.end_ms
    assert root.attributes["icefloe.tables"] == 2


def test_a_round_of_many_tables_is_bounded() -> None:
    """The number of tables is on the round; its spans are not more than a limit."""
    root, *steps = traced(TABLES_MAX + 50)
    assert sum(step.name == "commit table" for step in steps) == TABLES_MAX
    assert root.attributes["icefloe.tables"] == TABLES_MAX + 50


def test_a_round_that_an_error_ends_is_sent_with_its_code() -> None:
    """What was done until then, and nothing for a coordinator without a round."""
    sent: list[RoundSpan] = []
    trace = RoundTrace("c", Steps(), sent.extend)
    trace.failed("kafka")
    assert not sent
    with trace.step("start commit", COMMIT_ID):
        pass
    trace.failed("kafka")
    assert [(s.name, s.error_code) for s in sent] == [("round", "kafka"), ("start commit", None)]


def test_a_round_that_is_given_up_leaves_nothing_in_the_next() -> None:
    """The layout changed: the next round has another id."""
    sent: list[RoundSpan] = []
    trace = RoundTrace("c", Steps(), sent.extend)
    for commit_id in (COMMIT_ID, OTHER_ID):
        with trace.step("start commit", commit_id):
            pass
    trace.ended(ended(OTHER_ID))
    assert {s.commit_id for s in sent} == {OTHER_ID}


def test_without_a_receiver_nothing_is_collected() -> None:
    """As on a node that exports no traces."""
    sent: Sequence[RoundSpan] = []
    trace = RoundTrace("c", Steps(), None)
    with trace.step("start commit", COMMIT_ID):
        pass
    trace.committed(TableCommitted(table(0), COMMIT_ID, 1))
    trace.ended(ended(COMMIT_ID))
    assert not sent
    assert trace._open is None
