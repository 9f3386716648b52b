"""Source offsets that are added to a transaction in a thread.

Rules of this file:
- Sending offsets has a time limit of its own: librdkafka 2.16.0 ignores its limit and waits for a
  lost group coordinator until another broker connects or disconnects (its issues 5456 and 5511; a
  restarted single broker is enough). A call that hangs is left to its thread, which keeps the
  client alive. Its later requests carry an epoch that the successor's ``init`` has fenced.
- Offsets may be sent before the messages of their transaction exist. Such a transaction must not
  stay open for long: the broker would abort it, and fence the producer with that. So its thread
  aborts it, unless it is taken in time.
- Either the offsets are taken or their transaction is aborted, never both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from confluent_kafka import KafkaException

from connect.errors import InvariantViolation, RetriableError
from connect.gateways.kafka.kafka_errors import UNAVAILABLE
from connect.model.layout import TopicPartition

_FAILURES = (KafkaException, SystemError, InvariantViolation)  # the last one of a closed producer
_State: TypeAlias = Literal["open", "taken", "dropped", "closed"]


class SentOffsets:
    """Offsets of one transaction.

    Args:
        group_id: group of the offsets.
        offsets: next offset of each partition.
        send: adds them to the transaction of a client, and waits for the answer.
        doing: named in errors.
    """

    def __init__(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        send: Callable[[], None],
        doing: str,
    ) -> None:
        self._doing = doing
        self.group_id = group_id
        self.offsets = dict(offsets)
        self._send = send
        self._state: _State = "taken"
        self._lock = threading.Lock()
        self._decided = threading.Event()
        self._is_sent = threading.Event()
        self._has_ended = threading.Event()
        self._failure: Exception | None = None  # of the thread; raised by those that wait for it

    def start(self) -> None:
        """Send the offsets of a transaction whose messages exist."""
        self._run_in_thread(self._sent)

    def start_early(self, abort: Callable[[], None], limit_s: float) -> None:
        """Send the offsets before the messages exist.

        Args:
            abort: aborts the transaction, and waits for the answer.
            limit_s: the transaction is aborted if it is not taken in this time.
        """
        self._state = "open"

        def run() -> None:
            if not self._sent():
                return
            self._decided.wait(limit_s)
            with self._lock:
                if self._state == "open":
                    self._state = "dropped"
            if self._state == "dropped":
                try:
                    abort()
                except _FAILURES as error:
                    self._failure = error

        self._run_in_thread(run)

    def take(self) -> bool:
        """Use the transaction; return False if it is, or will be, aborted."""
        with self._lock:
            if self._state == "open":
                self._state = "taken"
        self._decided.set()
        return self._state == "taken"

    def drop(self) -> None:
        """Abort the transaction, in its thread."""
        with self._lock:
            if self._state == "open":
                self._state = "dropped"
        self._decided.set()

    def close(self) -> None:
        """Leave the transaction to the next owner of the id."""
        with self._lock:
            self._state = "closed"
        self._decided.set()

    def wait_sent(self, timeout_s: float) -> None:
        """Wait until the offsets are sent; raise what the client raised.

        Raises:
            RetriableError: they are not sent within the time.
        """
        if not self._wait(self._is_sent, timeout_s):
            raise RetriableError(
                f"{self._doing}: the coordinator of group {self.group_id} did not take the offsets "
                f"in {timeout_s:.0f} s",
                code="transaction_unknown",
            )

    def wait_aborted(self, timeout_s: float) -> None:
        """Wait until the transaction is aborted; errors as ``wait_sent``."""
        if not self._wait(self._has_ended, timeout_s):
            raise RetriableError(
                f"{self._doing}: the broker did not abort it in {timeout_s:.0f} s",
                code=UNAVAILABLE,
            )

    def _wait(self, event: threading.Event, timeout_s: float) -> bool:
        is_set = event.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return is_set

    def _sent(self) -> bool:
        try:
            self._send()
        except _FAILURES as error:
            self._failure = error
        self._is_sent.set()
        return self._failure is None

    def _run_in_thread(self, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                work()
            finally:
                self._has_ended.set()

        threading.Thread(target=run, name="send-offsets", daemon=True).start()


class EarlyOffsets:
    """The offsets of a producer whose transaction has no messages yet, if it has begun one."""

    def __init__(self) -> None:
        self._sent: SentOffsets | None = None

    def start(self, sent: SentOffsets, abort: Callable[[], None], limit_s: float) -> None:
        """Send offsets, as ``SentOffsets.start_early``; none may have been sent before."""
        self._sent = sent
        sent.start_early(abort, limit_s)

    def taken(
        self, group_id: str | None, offsets: Mapping[TopicPartition, int] | None
    ) -> SentOffsets | None:
        """Return the offsets if they are exactly these, and their transaction is not aborted."""
        sent = self._sent
        if sent is None or (sent.group_id, sent.offsets) != (group_id, offsets):
            return None
        if not sent.take():
            return None
        self._sent = None
        return sent

    def drop(self) -> None:
        """Abort the transaction, without waiting for it."""
        if self._sent is not None:
            self._sent.drop()

    def abort(self, timeout_s: float) -> None:
        """Abort the transaction, and wait for that; errors as ``SentOffsets.wait_aborted``."""
        sent, self._sent = self._sent, None
        if sent is not None:
            sent.drop()
            try:
                sent.wait_aborted(timeout_s)
            finally:
                sent.close()
