"""Which servers get the node's Kafka login, seen by a server that a connector names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from connect.errors import IcefloeError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import TransactionalProducer, client_properties
from connect.gateways.kafka.kafka_properties import overridden
from connect.model.layout import TopicPartition
from tests.support.fakes.kafka_listener import KafkaListener

CANARY = "canary-of-the-node"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="node" password="{CANARY}";',
}


LONG_S = 300.0
PLACE = TopicPartition("t", 0)
REQUESTS = (
    lambda kafka: KafkaAdmin(kafka, timeout_s=LONG_S).committed("g", [PLACE]),
    lambda kafka: KafkaAdmin(kafka, timeout_s=LONG_S).topics(),
    lambda kafka: KafkaAdmin(kafka, timeout_s=LONG_S).topic_id("t"),
    lambda kafka: KafkaAdmin(kafka, timeout_s=LONG_S).members("g"),
    lambda kafka: KafkaAdmin(kafka, timeout_s=LONG_S).ends([PLACE]),
    lambda kafka: KafkaAdmin(kafka, timeout_s=LONG_S).ensure_topic("t", 1),
    lambda kafka: TransactionalProducer(kafka, "p").init(LONG_S),
)


@pytest.fixture
def listener() -> Iterator[KafkaListener]:
    """A server that keeps what it is sent."""
    with KafkaListener() as listener:
        yield listener


def ask(properties: Mapping[str, str]) -> None:
    """Let a client try to log in."""
    admin = KafkaAdmin(properties, timeout_s=2)
    with pytest.raises(IcefloeError):
        admin.topics()
    admin.close()


def test_the_node_logs_in_at_its_own_servers(listener: KafkaListener) -> None:
    """The listener accepts a password, so the node's own servers receive it."""
    properties = client_properties(
        {"bootstrap.servers": listener.address, **LOGIN}, {"linger.ms": "1"}
    )
    while CANARY.encode() not in listener.received:  # the test's timeout bounds it
        ask(properties)


@pytest.mark.parametrize(
    "override",
    [
        {},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
    ],
)
@pytest.mark.parametrize("node_server", ["", "127.0.0.1:1,"])
def test_other_servers_never_get_the_nodes_login(
    listener: KafkaListener, override: dict[str, str], node_server: str
) -> None:
    """A connector gets no login for another server, alone or next to the node's."""
    node = {"bootstrap.servers": "127.0.0.1:1", "ssl.key.password": CANARY, **LOGIN}
    given = {"bootstrap.servers": node_server + listener.address, **override}
    properties = client_properties(node, given)
    assert CANARY not in str(properties)
    with contextlib.suppress(IcefloeError):  # a client without a login may refuse to start
        ask(properties)
    assert CANARY.encode() not in listener.received


def test_servers_of_any_layer_of_overrides_count() -> None:
    """The last override decides about the servers, and so about the login."""
    node = {"bootstrap.servers": "a:1, b:2", "consumer.ssl.key.password": CANARY, **LOGIN}
    other, own = {"bootstrap.servers": "evil:1"}, {"bootstrap.servers": "B:2"}
    prefix = "consumer."
    assert CANARY not in str(client_properties(node, other, {"linger.ms": "1"}, prefix=prefix))
    assert CANARY not in str(client_properties(node, own, other, prefix=prefix))
    assert CANARY in str(client_properties(node, other, own, prefix=prefix))
    shared = client_properties(node)
    assert CANARY not in str(overridden(shared, {**own, **other}))
    assert CANARY in str(overridden(shared, {**other, **own}))
    login = {"sasl.jaas.config": "own"}
    assert overridden(shared, {**other, **login})["sasl.jaas.config"] == "own"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("request_of", REQUESTS)
def test_a_refused_login_is_reported_at_once(
    listener: KafkaListener, request_of: Callable[[dict[str, str]], object]
) -> None:
    """Long before the request's time is over, with its reason; the test's timeout bounds it."""
    with pytest.raises(RetriableError, match="the broker refuses the login") as refused:
        request_of({"bootstrap.servers": listener.address, **LOGIN})
    assert refused.value.code == "kafka_authentication"
    assert CANARY not in str(refused.value)


@pytest.mark.timeout(60)
def test_a_client_logs_in_again_after_a_refusal(listener: KafkaListener) -> None:
    """Each request after a refused one has a new client: one client reports every 30 s only."""
    admin = KafkaAdmin({"bootstrap.servers": listener.address, **LOGIN}, timeout_s=LONG_S)
    for _ in range(2):
        for ask in (admin.topics, lambda: admin.members("g")):
            with pytest.raises(RetriableError) as refused:
                ask()
            assert refused.value.code == "kafka_authentication"
    admin.close()
