"""The transactional producer's own promises, where no broker can be made to break them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from connect.errors import RetriableError
from connect.gateways.kafka import kafka_clients
from connect.gateways.kafka.kafka_clients import TransactionalProducer
from connect.model.layout import TopicPartition


class HangingClient:
    """A client whose group coordinator never answers."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def begin_transaction(self) -> None:
        """Nothing to do."""

    def send_offsets_to_transaction(self, *_: Any) -> None:
        """Ignores the time it was given."""
        self.release.wait()

    def purge(self, **_: Any) -> None:
        """Nothing to do."""

    def poll(self, _: float) -> None:
        """Nothing to do."""


def test_a_transaction_without_a_group_coordinator_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As unknown, in time, and the producer can be closed."""
    monkeypatch.setattr(kafka_clients, "OFFSETS_TIMEOUT_S", 0.05)
    producer = TransactionalProducer({"bootstrap.servers": "127.0.0.1:1"}, "t")
    client = HangingClient()
    producer._client = client
    with pytest.raises(RetriableError) as raised:
        producer.transact([], group_id="g", offsets={TopicPartition("t", 0): 1})
    assert raised.value.code == "transaction_unknown"
    producer.close()
    client.release.set()
