"""Questions to a consumer group's coordinator by the Kafka admin client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

COORDINATOR_LOOKS = 50
COORDINATOR_PAUSE_S = 0.1
ANSWER_TIMEOUT_S = 10.0
# the longest that librdkafka takes
_CLIENT_TIMEOUT_S = 3600.0
_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


class CoordinatorClient:
    """An admin client that is replaced when an answer is overdue. Thread-safe.

    Two faults of librdkafka 2.16 ask for this. A client that asked while the broker was away may
    wait for the answer for ever, and all later questions to the coordinator with it; a new one is
    answered at once. And a question that librdkafka gives up while the coordinator is away is freed
    but asked all the same when it is back, which ends the process (``rd_kafka_admin_coord_request``
    returns an error, whose reply uses the freed ``eonce``). So librdkafka never gives up: the bound
    is kept here, and the end of the replaced client answers each of its questions once.

    Args:
        connect: makes a client.
        timeout_s: until an answer is overdue, at most ``ANSWER_TIMEOUT_S``.
    """

    def __init__(self, connect: Callable[[], AdminClient], timeout_s: float) -> None:
        self._connect = connect
        self._timeout_s = min(timeout_s, ANSWER_TIMEOUT_S)
        self._lock = threading.Lock()
        self._client: AdminClient | None = None

    def ask(self, question: Callable[[AdminClient, float], Future[Any]]) -> Any:
        """The answer to one question, asked again while the coordinator is being found.

        Args:
            question: asks a client, with the client's own timeout in seconds.

        Raises:
            KafkaException: what the coordinator answers; ``_TIMED_OUT`` when it does not.
        """
        return when_coordinated(lambda: self._once(question))

    def _once(self, question: Callable[[AdminClient, float], Future[Any]]) -> Any:
        with self._lock:
            client = self._client = self._client or self._connect()
        answer = question(client, _CLIENT_TIMEOUT_S)
        try:
            return answer.result(self._timeout_s)
        except TimeoutError:
            with self._lock:
                # another thread may have replaced it already
                self._client = None if self._client is client else self._client
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001 - public


def when_coordinated(ask: Callable[[], Any]) -> Any:
    """Ask again while a group's coordinator is being found, moved or loaded."""
    pause = threading.Event()
    for _ in range(COORDINATOR_LOOKS):
        try:
            return ask()
        except KafkaException as e:
            if e.args[0].code() not in _COORDINATOR_MOVES:
                raise
            pause.wait(COORDINATOR_PAUSE_S)
    return ask()
