"""Questions to a group's coordinator over a restart of the broker."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection

import pytest

from connect.embedded.broker import Broker
from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin

pytestmark = pytest.mark.kafka

TIMEOUT_S = 150
CALL_TIMEOUT_S = 2.0
SETTLED_S = 3.0


def ask_for_members(servers: str, pipe: Connection) -> None:
    """A process of its own, as a fault of librdkafka ends it: one question for each message."""
    admin = KafkaAdmin({"bootstrap.servers": servers}, timeout_s=CALL_TIMEOUT_S)
    held = []
    while pipe.recv():
        try:
            pipe.send(str(admin.members("g")))
        except RetriableError as e:
            held.append(e)  # with its frames, and so the client that it was asked with
            pipe.send(e.code)


def test_requests_to_an_absent_broker_end_with_an_error(own_broker: Broker) -> None:
    """Each ends in time; when the broker is back it is asked again."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=ask_for_members, args=(own_broker.bootstrap_servers, theirs), daemon=True
    )
    process.start()

    def answer() -> str:
        ours.send("ask")
        assert ours.poll(TIMEOUT_S), f"no answer; exit code {process.exitcode}"
        return str(ours.recv())

    def wait_until_answered() -> None:
        """A broker that has just started may not answer within the limit of a call."""
        while (reported := answer()) != "[]":
            assert reported == "broker_unavailable"

    wait_until_answered()
    own_broker.stop()
    assert [answer() for _ in range(2)] == ["broker_unavailable"] * 2
    own_broker.start()
    wait_until_answered()
    process.join(SETTLED_S)  # what was asked before may be answered only now
    assert process.exitcode is None
    ours.send("")
    process.join(TIMEOUT_S)
    assert process.exitcode == 0
