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
from concurrent.futures import Future

from confluent_kafka import KafkaException

from connect.errors import InvariantViolation, RetriableError

_FAILURES = (KafkaException, SystemError, InvariantViolation)  # the last one of a closed producer


def send_in_time(request: Callable[[], None], timeout_s: float, doing: str) -> None:
    """Send offsets and wait for the answer; raise what the client raises.

    Args:
        request: adds the offsets to the transaction of a client, and waits for the answer.
        timeout_s: for the answer.
        doing: named in the error.

    Raises:
        RetriableError: ``transaction_unknown``: the offsets are not certainly sent.
    """
    sent: Future[None] = Future()

    def run() -> None:
        try:
            request()
        except _FAILURES as error:
            sent.set_exception(error)
        else:
            sent.set_result(None)

    threading.Thread(target=run, name="send-offsets", daemon=True).start()
    try:
        sent.result(timeout_s)
    except TimeoutError as error:
        raise RetriableError(
            f"{doing}: the group's coordinator did not take the offsets in {timeout_s:.0f} s",
            code="transaction_unknown",
        ) from error
