"""Transactional producers against a broker that freezes."""

from __future__ import annotations

import time

import pytest

from connect.embedded.broker import Broker
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka
_ANSWER_S = 5.0  # a client that still waits for the broker gets its answer within it


@pytest.mark.parametrize("timeout_s", [1.0, 4.0])
def test_a_closed_producer_fences_no_other(own_broker: Broker, timeout_s: float) -> None:
    """A take-over that timed out ends with ``close``, although an error still refers to it."""
    topic = Topics(own_broker).create()
    kafka = {"bootstrap.servers": own_broker.bootstrap_servers}
    owner = TransactionalProducer(kafka, "id")
    owner.init()
    owner.transact([ProducerMessage(topic, b"", b"1")])
    own_broker.pause()
    try:
        late = TransactionalProducer(kafka, "id")
        with pytest.raises(RetriableError) as caught:
            late.init(timeout_s)
        late.close()
    finally:
        own_broker.resume()
    time.sleep(_ANSWER_S)
    owner.transact([ProducerMessage(topic, b"", b"2")])
    owner.close()
    assert caught.value.code == "broker_unavailable"
