"""Source offsets that are added to a transaction in a thread.

Rules of this file:
- Sending offsets has a time limit of its own: librdkafka 2.16.0 ignores its limit and waits for a
  lost group coordinator until another broker connects or disconnects (its issues 5456 and 5511; a
  restarted single broker is enough). A call that hangs is left to its thread, which keeps the
  client alive. Its later requests carry an epoch that the successor's ``init`` has fenced.
- Offsets may be sent before the messages of their transaction exist. Such a transaction must not
  stay open for long: the broker would abort it, and fence the producer with that. So it is aborted
  here, unless it is taken in time.
- Either the offsets are taken or their transaction is aborted, never both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from connect.model.layout import TopicPartition

_State: TypeAlias = Literal["open", "taken", "dropped", "closed"]


class SentOffsets:
    """Offsets of one transaction.

    Args:
        group_id: group of the offsets.
        offsets: next offset of each partition.
        send: adds them to the transaction of a client, and waits for the answer.
    """

    def __init__(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        send: Callable[[], None],
    ) -> None:
        self.group_id = group_id
        self.offsets = dict(offsets)
        self._send = send
        self._state: _State = "taken"
        self._lock = threading.Lock()
        self._decided = threading.Event()
        self._is_sent = threading.Event()
        self._has_ended = threading.Event()
        self._failure: Exception | None = None

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
                except Exception as error:  # raised by ``wait_aborted``
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

    def wait_sent(self, timeout_s: float) -> bool:
        """Return whether the offsets are sent within the time; raise what the client raised."""
        return self._wait(self._is_sent, timeout_s)

    def wait_aborted(self, timeout_s: float) -> bool:
        """Return whether the transaction is aborted within the time, as ``wait_sent``."""
        return self._wait(self._has_ended, timeout_s)

    def _wait(self, event: threading.Event, timeout_s: float) -> bool:
        is_set = event.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return is_set

    def _sent(self) -> bool:
        try:
            self._send()
        except Exception as error:  # raised by ``wait_sent``
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
