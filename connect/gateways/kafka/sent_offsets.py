"""Source offsets that are added to a transaction in a thread.

Rules of this file:
- Sending offsets has a time limit of its own: librdkafka 2.16.0 ignores its limit and waits for a
  lost group coordinator until another broker connects or disconnects (its issues 5456 and 5511; a
  restarted single broker is enough). A call that hangs is left to its thread, which keeps the
  client alive. Its later requests carry an epoch that the successor's ``init`` has fenced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from connect.errors import InvariantViolation, RetriableError

_FAILURES = (KafkaException, SystemError, InvariantViolation)  # the last one of a closed producer


@dataclass(slots=True)
class SentOffsets:
    """Offsets of one transaction.

    Attributes:
        group_id: group of the offsets.
        request: adds them to the transaction of a client, and waits for the answer.
        doing: named in errors.
    """

    group_id: str
    request: Callable[[], None]
    doing: str
    _is_sent: threading.Event = field(default_factory=threading.Event)
    _failure: Exception | None = None  # of the thread; raised by the one that waits for it

    def send(self, timeout_s: float) -> None:
        """Send the offsets and wait; raise what the client raised.

        Raises:
            RetriableError: they are not sent within the time.
        """
        threading.Thread(target=self._run, name="send-offsets", daemon=True).start()
        is_sent = self._is_sent.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        if not is_sent:
            raise RetriableError(
                f"{self.doing}: the coordinator of group {self.group_id} did not take the offsets "
                f"in {timeout_s:.0f} s",
                code="transaction_unknown",
            )

    def _run(self) -> None:
        try:
            self.request()
        except _FAILURES as error:
            self._failure = error
        finally:
            self._is_sent.set()
