"""Sends inputs to a commit kernel, as the coordinator does."""

from __future__ import annotations

from uuid import UUID

from connect.model.layout import Layout, TopicPartition
from control_schemas.events import (
    DataComplete,
    DataWritten,
    Event,
    EventHeaders,
    SourceRange,
    TableReference,
    TopicPartitionOffset,
)
from coordinator.kernel.commit_round import KernelSettings
from coordinator.kernel.effects import (
    CompletionSent,
    Effect,
    Envelope,
    LayoutChanged,
    RoundEnded,
    SendStartCommit,
    TableCommitted,
    TableFailed,
    Tick,
)
from coordinator.kernel.kernel import Kernel

T1 = TableReference("iceberg", ("db",), "t1", UUID(int=101))
T2 = TableReference("iceberg", ("db",), "t2", UUID(int=102))
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
SECOND_US = 1_000_000


class Driver:
    """Sends inputs to a kernel, with consecutive ids, offsets and times."""

    def __init__(self, *, interval_ms: int = 10_000, timeout_ms: int = 3_000) -> None:
        self.kernel = Kernel(KernelSettings("c-0", interval_ms, timeout_ms))
        self.now_ms = 1_000
        self.offset = 0
        self.ids = 0

    def tick(self, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        self.ids += 1
        return self.kernel.receive(Tick(UUID(int=self.ids), 0), self.now_ms)

    def layout(self, *partitions: TopicPartition, number: int = 1) -> list[Effect]:
        layout = Layout("c", number, (tuple(partitions),))
        return self.kernel.receive(LayoutChanged(layout), self.now_ms)

    def read(self, payload: object, headers: EventHeaders | None = None) -> list[Effect]:
        event = Event(UUID(int=9), 0, "connect-c", payload)  # type: ignore[arg-type] # any payload
        envelope = Envelope(event, headers or EventHeaders(), 0, self.offset)
        self.offset += 1
        return self.kernel.receive(envelope, self.now_ms)

    def written(
        self, commit: UUID, table: TableReference = T1, *, task: int | None = None, layout: int = 1
    ) -> list[Effect]:
        """Java's event, or where a task is given one of the step 7 of that task."""
        own = EventHeaders() if task is None else EventHeaders(layout=layout, batch=7, task=task)
        return self.read(DataWritten(commit, table, (), ()), own)

    def complete(
        self,
        commit: UUID,
        *assignments: tuple[TopicPartition, int | None],
        layout: int | None = 1,
        ranges: tuple[SourceRange, ...] = (),
        task: int | None = None,
    ) -> list[Effect]:
        offsets = tuple(TopicPartitionOffset(tp.topic, tp.partition, 7, t) for tp, t in assignments)
        headers = EventHeaders(layout=layout, ranges=ranges, task=task)
        return self.read(DataComplete(commit, offsets), headers)

    def start(self) -> UUID:
        """Start a round and return its id."""
        (effect,) = self.tick()
        assert isinstance(effect, SendStartCommit)
        return effect.commit_id

    def committed(self, commit: UUID, table: TableReference = T1) -> list[Effect]:
        outcome = TableCommitted(table, commit, snapshot_id=55)
        return self.kernel.receive(outcome, self.now_ms)

    def failed(
        self,
        commit: UUID,
        table: TableReference = T1,
        *,
        retriable: bool = True,
        code: str = "code",
    ) -> list[Effect]:
        outcome = TableFailed(table, commit, code, "why", is_retriable=retriable)
        return self.kernel.receive(outcome, self.now_ms)

    def sent(self, commit: UUID) -> RoundEnded:
        (effect,) = self.kernel.receive(CompletionSent(commit), self.now_ms)
        assert isinstance(effect, RoundEnded)
        return effect
