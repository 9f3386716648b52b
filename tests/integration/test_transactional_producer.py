"""Transactional producers: a broker that freezes, the bytes of a round's events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from connect.embedded.broker import Broker
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from control_schemas.codec import encode
from control_schemas.events import DataWritten, Event, TableReference
from tests.support.stack import Topics
from tests.support.tables import data_file_named

pytestmark = pytest.mark.kafka
_ANSWER_S = 5.0  # a client that still waits for the broker gets its answer within it


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests pause and resume."""
    with Broker(tmp_path_factory.mktemp("own-broker")) as started:
        yield started


@pytest.mark.parametrize("timeout_s", [1.0, 4.0])
def test_a_closed_producer_fences_no_other(own_broker: Broker, timeout_s: float) -> None:
    """A take-over that timed out ends with ``close``, although an error still refers to it."""
    topic = Topics(own_broker).create()
    kafka = {"bootstrap.servers": own_broker.bootstrap_servers}
    owner = TransactionalProducer(kafka, topic)
    owner.init()
    owner.transact([ProducerMessage(topic, b"", b"1")])
    own_broker.pause()
    try:
        late = TransactionalProducer(kafka, topic)
        with pytest.raises(RetriableError) as caught:
            late.init(timeout_s)
        late.close()
    finally:
        own_broker.resume()
    time.sleep(_ANSWER_S)
    owner.transact([ProducerMessage(topic, b"", b"2")])
    owner.close()
    assert caught.value.code == "broker_unavailable"


def test_events_of_many_tables_are_few_bytes(broker: Broker) -> None:
    """Each event brings its schema of 8 kB; in the broker's log the schemas are there once."""
    topic = Topics(broker).create()
    producer = TransactionalProducer({"bootstrap.servers": broker.bootstrap_servers}, topic)
    producer.init()
    sent = [_event(f"t{number}") for number in range(200)]
    producer.transact([ProducerMessage(topic, b"", event) for event in sent])
    producer.close()
    log = sum(file.stat().st_size for file in broker.log_file.parent.glob(f"data/{topic}-0/*.log"))
    assert 0 < log * 20 < sum(map(len, sent))


def _event(table: str) -> bytes:
    reference = TableReference("iceberg", ("db",), table, uuid4())
    files = (data_file_named(f"s3://bucket/db/{table}/data/{uuid4()}.parquet"),)
    return encode(Event(uuid4(), 0, "connect-c", DataWritten(uuid4(), reference, files, ())))
