"""The request that adds source offsets to a transaction."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException

from connect.errors import RetriableError
from connect.gateways.kafka.sent_offsets import send_in_time


def test_an_answer_and_an_error_of_the_client_end_the_wait() -> None:
    """The error is raised as it is."""

    def refused() -> None:
        raise KafkaException("refused")

    send_in_time(lambda: None, 10, "offsets of group g")
    with pytest.raises(KafkaException, match="refused"):
        send_in_time(refused, 10, "offsets of group g")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_offsets_are_not_taken_as_sent_after_an_unexpected_error() -> None:
    """Else the transaction would be committed without them, and its records read again."""

    def broken() -> None:
        raise TypeError("a bug")

    with pytest.raises(RetriableError) as raised:
        send_in_time(broken, 0.05, "offsets of group g")
    assert raised.value.code == "transaction_unknown"
