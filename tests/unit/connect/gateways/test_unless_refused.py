"""Requests to Kafka that end early while the login is refused, and wait for all else."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from connect.gateways.kafka.kafka_errors import ConnectionFailures, unless_refused


class Request:
    """A request that fails a few times before it has its answer."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.waits_s: list[float] = []

    def __call__(self, timeout_s: float) -> str:
        """Take the next error, or answer."""
        self.waits_s.append(timeout_s)
        if self._errors:
            raise self._errors.pop(0)
        return "answer"

    def answer(self) -> str:
        """Wait for the answer."""
        failures = ConnectionFailures()
        return unless_refused(self, 30.0, failures=failures, serve=lambda: None)


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(KafkaError._TIMED_OUT),
        KafkaError(KafkaError._WAIT_COORD),
        KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
        KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE),
        KafkaError(KafkaError.NOT_COORDINATOR),
        KafkaError(KafkaError.CONCURRENT_TRANSACTIONS),
        KafkaError(KafkaError.REQUEST_TIMED_OUT, retriable=True),
    ],
)
def test_an_error_that_may_pass_is_waited_for(error: KafkaError) -> None:
    """A new broker loads its transactions for some seconds after its start."""
    request = Request(KafkaException(error), KafkaException(error))
    assert request.answer() == "answer"
    assert len(request.waits_s) == 3
    assert sum(request.waits_s) <= 30.0


def test_a_final_error_is_raised_at_once() -> None:
    """A missing permission is not repeated."""
    error = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no")
    request = Request(KafkaException(error))
    with pytest.raises(KafkaException):
        request.answer()
    assert len(request.waits_s) == 1
