"""The VTTS is sound and never goes back, for any tasks, layouts and coordinators.

The production ledgers of tasks answer the production kernel. Records arrive out of order by less
than ``DISORDER_MS``, which is what the tasks are configured for; then nothing may be promised that
is not announced, without exception.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from connect.model.layout import Layout, TopicPartition, spread
from control_schemas.events import (
    CommitComplete,
    DataComplete,
    Event,
    EventHeaders,
)
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import (
    CompletionSent,
    Effect,
    Envelope,
    LayoutChanged,
    SendCompletion,
    SendStartCommit,
    Tick,
)
from coordinator.kernel.kernel import Kernel
from coordinator.kernel.valid_through import valid_through
from worker.batch.descriptors import PartitionProgress
from worker.task.read_ledger import OffsetRanges, ReadLedger, WrittenBatch

DISORDER_MS = 50
TIMEOUT_MS = 30
PARTITIONS_MAX = 4


class ConnectorModel:
    """Tasks, a coordinator, a source, one clock."""

    def __init__(self) -> None:
        self.now_ms = 10_000
        self.ids = self.offset = 0
        self.source: list[list[int]] = [[], []]
        self.announced = [0, 0]
        self.claims: list[int] = []
        self.asked: UUID | None = None
        self.layout = self._spread(1, 2)
        self.tasks = self._start_tasks()
        self.restart_coordinator()

    def _spread(self, number: int, tasks: int) -> Layout:
        partitions = [TopicPartition("t", p) for p in range(len(self.source))]
        return spread("c", number, partitions, tasks=tasks)

    def _start_tasks(self) -> list[ReadLedger]:
        return [self._start(n) for n in range(len(self.layout.tasks))]

    def _start(self, number: int) -> ReadLedger:
        at = {tp: self.announced[tp.partition] for tp in self.layout.tasks[number]}
        return ReadLedger(at, out_of_order_ms=DISORDER_MS, idle_lag_ms=DISORDER_MS)

    # ------------------------------------------------------------------ what happens

    def produce(self, partition: int, late_ms: int) -> None:
        """A record arrives, up to the disorder later than its timestamp says."""
        self.source[partition % len(self.source)].append(self.now_ms - late_ms)

    def wait(self, duration_ms: int) -> None:
        """Time passes."""
        self.now_ms += duration_ms
        self.tick()

    def read(self, number: int, records: int) -> None:
        """A task reads up to so many records of each partition."""
        ledger = self.tasks[number % len(self.tasks)]
        starts = ledger.next_offsets
        ends = {tp: min(at + records, len(self.source[tp.partition])) for tp, at in starts.items()}
        progress = {}
        for tp, end in ends.items():
            times = self.source[tp.partition][starts[tp] : end]
            if times:
                progress[tp] = PartitionProgress(len(times), 0, 0, len(times), max(times))
        ledger.add(WrittenBatch(OffsetRanges(starts, ends), progress))

    def answer(self, number: int, records: int) -> None:
        """A task answers the round that is open, having read some or all of what is there."""
        if self.asked is None:
            return
        index = number % len(self.tasks)
        ledger = self.tasks[index]
        ends = {tp: len(self.source[tp.partition]) for tp in ledger.next_offsets}
        polled_at_ms = self.now_ms
        self.now_ms += records % 3  # reading takes time, records arrive meanwhile
        self.produce(number, late_ms=0)
        self.read(index, records)
        ledger.see_ends(ends, polled_at_ms=polled_at_ms)
        answer = ledger.answer()
        ledger.announced(answer)
        for item in answer.assignments:
            assert item.offset is not None
            self.announced[item.partition] = item.offset
        headers = EventHeaders(layout=self.layout.number, ranges=answer.ranges)
        self._envelope(DataComplete(self.asked, answer.assignments), headers)

    def restart_task(self, number: int) -> None:
        """A task forgets what it read and continues from its announcements."""
        index = number % len(self.tasks)
        self.tasks[index] = self._start(index)

    def change_layout(self, tasks: int, *, grows: bool) -> None:
        """Partitions are dealt again, perhaps one more than before."""
        if grows and len(self.source) < PARTITIONS_MAX:
            self.source.append([])
            self.announced.append(0)
        self.layout = self._spread(self.layout.number + 1, tasks)
        self.tasks = self._start_tasks()
        self._take(self.kernel.receive(LayoutChanged(self.layout), self.now_ms))

    def restart_coordinator(self) -> None:
        """A new kernel, which reads the last completion again."""
        settings = KernelSettings("c-0", 10, TIMEOUT_MS, repeat_start_ms=1_000)
        self.kernel = Kernel(settings)
        self.asked = None
        self._take(self.kernel.receive(LayoutChanged(self.layout), self.now_ms))
        if self.claims:
            self._envelope(CommitComplete(UUID(int=0), self.claims[-1]), EventHeaders())

    def tick(self) -> None:
        """The coordinator reads the clock."""
        self.ids += 1
        self._take(self.kernel.receive(Tick(UUID(int=self.ids), 0), self.now_ms))

    # ------------------------------------------------------------------ what must hold

    def _envelope(self, payload: DataComplete | CommitComplete, headers: EventHeaders) -> None:
        event = Event(UUID(int=9), 0, "connect-c", payload)
        envelope = Envelope(event, headers, 0, self.offset)
        self.offset += 1
        self._take(self.kernel.receive(envelope, self.now_ms))

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendStartCommit(commit_id):
                    self.asked = commit_id
                case SendCompletion(commit_id, valid_through_us=claim_us):
                    if claim_us is not None:
                        self._check(claim_us)
                    self.asked = None
                    self._take(self.kernel.receive(CompletionSent(commit_id), self.now_ms))

    def _check(self, claim_us: int) -> None:
        assert not self.claims or claim_us >= self.claims[-1], "the VTTS went back"
        self.claims.append(claim_us)
        for tp in self.layout.partitions:
            unread = self.source[tp.partition][self.announced[tp.partition] :]
            promised = [at_ms for at_ms in unread if at_ms * 1000 <= claim_us]
            assert not promised, f"{promised} of {tp} promised by {claim_us}, not announced"


NUMBERS = st.integers(0, 3)
ACTS = st.one_of(
    st.tuples(st.just("produce"), NUMBERS, st.integers(0, DISORDER_MS - 1)),
    st.tuples(st.just("produce"), NUMBERS, st.integers(0, DISORDER_MS - 1)),
    st.tuples(st.just("wait"), st.integers(1, 2 * TIMEOUT_MS), st.just(0)),
    st.tuples(st.just("read"), NUMBERS, st.integers(1, 4)),
    st.tuples(st.just("answer"), NUMBERS, st.integers(0, 3)),
    st.tuples(st.just("answer"), NUMBERS, st.just(1_000)),
    st.tuples(st.just("everyone answers"), st.just(0), st.sampled_from([0, 1, 1_000])),
    st.tuples(st.just("restart task"), NUMBERS, st.just(0)),
    st.tuples(st.just("change layout"), st.integers(1, 3), st.integers(0, 1)),
    st.tuples(st.just("restart coordinator"), st.just(0), st.just(0)),
)


def act(model: ConnectorModel, name: str, a: int, b: int) -> None:
    """One thing that happens."""
    match name:
        case "produce":
            model.produce(a, late_ms=b)
        case "wait":
            model.wait(a)
        case "read":
            model.read(a, b)
        case "answer":
            model.answer(a, b)
        case "everyone answers":
            model.wait(10)
            for number in range(len(model.tasks)):
                model.answer(number, b)
        case "restart task":
            model.restart_task(a)
        case "change layout":
            model.change_layout(a, grows=bool(b))
        case "restart coordinator":
            model.restart_coordinator()


@given(st.lists(ACTS, max_size=60))
@example(  # a partition that is added behind the last claim must not be promised
    [
        ("everyone answers", 0, 1_000),
        ("change layout", 2, 1),
        ("produce", 2, 40),
        ("produce", 2, 45),
        ("everyone answers", 0, 1),
        ("everyone answers", 0, 1_000),
    ]
)
def test_the_vtts_is_true_and_never_decreases(acts: list[tuple[str, int, int]]) -> None:
    """Late records, idle partitions, restarts, new layouts: every record below it is announced."""
    model = ConnectorModel()
    for name, a, b in acts:
        act(model, name, a, b)


@given(st.lists(ACTS, max_size=25))
def test_the_vtts_catches_up_when_all_tasks_answer(acts: list[tuple[str, int, int]]) -> None:
    """After all is read, each round has a claim within idle lag and disorder."""
    model = ConnectorModel()
    for name, a, b in acts:
        act(model, name, a, b)
    model.wait(2 * TIMEOUT_MS)  # every open round is over
    before = len(model.claims)
    for _ in range(3):
        polled_at_ms = model.now_ms + 10
        act(model, "everyone answers", 0, 1_000)
    assert len(model.claims) >= before + 2
    assert model.claims[-1] >= (polled_at_ms - DISORDER_MS) * 1000


MICROSECONDS = st.integers(0, 10**16)
PARTITIONS = st.frozensets(st.integers(0, 5).map(lambda p: TopicPartition("t", p)), max_size=6)


@given(
    st.dictionaries(
        st.integers(0, 5).map(lambda p: TopicPartition("t", p)), st.none() | MICROSECONDS
    ),
    PARTITIONS,
    st.none() | MICROSECONDS.map(lambda us: us // 1000 * 1000),
    PARTITIONS,
)
def test_a_claim_is_the_minimum_or_the_last_one(
    read: dict[TopicPartition, int | None],
    expected: frozenset[TopicPartition],
    last_us: int | None,
    last_expected: frozenset[TopicPartition],
) -> None:
    """In whole milliseconds, not below the last, above the minimum only where it held before."""
    claim = valid_through(read, expected, last_us=last_us, last_expected=last_expected)
    given_us = [read.get(tp) for tp in expected]
    known = [us for us in given_us if us is not None]
    if claim is None:
        is_silent = len(known) < len(given_us) or not given_us
        is_behind = last_us is not None and bool(known) and min(known) // 1000 * 1000 < last_us
        assert is_silent or (is_behind and not expected <= last_expected)
        return
    assert len(known) == len(given_us) > 0
    assert claim % 1000 == 0
    assert last_us is None or claim >= last_us
    assert claim <= min(known) or (claim == last_us and expected <= last_expected)
