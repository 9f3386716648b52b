"""The transactional producer of a task: open while the task uses it, closed while it is idle.

Rules of this file:
- An open producer has four threads and eight file handles, or more with more brokers. A node may
  have hundreds of connectors without records.
- A closed producer keeps older ones fenced. To open it again takes a new epoch, which also fences
  a successor of the task. So this is done like a start, in the same order: first the fence, then
  the checks that no other task has had its place.
- With a short commit interval the producer stays open, because each round uses it.

Source:
    docs/decisions/0083-idle-tasks-close-their-producer.md
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from connect.clock import Clock
from connect.errors import InvariantViolation
from connect.gateways.kafka.kafka_clients import ProducerMessage, Stage, TransactionalProducer
from connect.model.layout import TopicPartition
from worker.task.read_ledger import Offsets

IDLE_TIMES_IN_INTERVAL = 6  # the shortest commit interval with which a producer is closed


@dataclass(slots=True)
class TaskProducer:
    """Sends the transactions of one task.

    Args:
        open_fenced: returns a new producer, after every older one with its id is fenced.
        confirm: checks that the task still has its place, and that these source offsets are
            committed; called after ``open_fenced``, except the first time.
        clock: monotonic time.
        idle_ms: closes the producer after this time without a transaction; None keeps it open.
    """

    open_fenced: Callable[[], TransactionalProducer]
    confirm: Callable[[Offsets], None]
    clock: Clock
    idle_ms: int | None = None
    _producer: TransactionalProducer | None = field(default=None, init=False)
    _used_ms: int = field(default=0, init=False)

    @property
    def request_bytes_max(self) -> int:
        """``max.request.size``: no message may be larger."""
        return self._opened.request_bytes_max

    def open(self) -> None:
        """Open the producer of a task that starts.

        Raises:
            Fenced, RetriableError: as ``TransactionalProducer.init``.
        """
        self._producer = self.open_fenced()
        self._used_ms = self.clock.monotonic_ms()

    def resume(self, announced: Offsets) -> None:
        """Open the producer again if it was closed, before a transaction.

        After an error it is closed, so nothing can be sent without the checks.

        Args:
            announced: the source offsets that the task committed last.

        Raises:
            Fenced, RetriableError: as ``open``; or another task has had the place of this one,
                which must not announce what it has read.
        """
        if self._producer is None:
            with contextlib.ExitStack() as failing:
                failing.callback(self.close)
                self.open()
                self.confirm(announced)
                failing.pop_all()

    def transact(
        self,
        messages: Iterable[ProducerMessage],
        *,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        on_stage: Callable[[Stage], None] = lambda _: None,
    ) -> None:
        """Send one transaction; arguments and errors as ``TransactionalProducer.transact``."""
        self._opened.transact(messages, group_id=group_id, offsets=offsets, on_stage=on_stage)
        self._used_ms = self.clock.monotonic_ms()

    def close_if_idle(self) -> None:
        """Close the producer if it was not used for a while."""
        if self.idle_ms is not None and self.clock.monotonic_ms() - self._used_ms >= self.idle_ms:
            self.close()

    def close(self) -> None:
        """Release the client; an open transaction is left to the next owner of the id."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    @property
    def _opened(self) -> TransactionalProducer:
        if self._producer is None:
            raise InvariantViolation("the producer of the task is closed")
        return self._producer


def idle_ms_of(commit_interval_ms: int, idle_ms: int) -> int | None:
    """Return when to close an unused producer; None if the rounds of the connector are too close.

    Args:
        commit_interval_ms: of the connector.
        idle_ms: of this process.
    """
    return idle_ms if commit_interval_ms >= IDLE_TIMES_IN_INTERVAL * idle_ms else None
