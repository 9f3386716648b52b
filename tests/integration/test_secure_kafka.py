"""Every way to log in at a broker, with every client: admin, transactions, reads, Spark."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader, ProducerMessage, TransactionalProducer
from connect.jvm.java import find_java
from connect.model.layout import TopicPartition
from tests.support.secure_broker import (
    AUDIENCE,
    CLIENT_SECRET,
    KEY_PASSWORD,
    PASSWORD,
    STORE_PASSWORD,
    USER,
    SecureBroker,
    secure_broker,
)
from tests.support.source_reads import BatchCollector, source_reader
from tests.support.spark_marks import SPARK_MARKS
from tests.support.stack import unique_name
from worker.spark.session import Session
from worker.task.read_ledger import OffsetRanges

pytestmark = [pytest.mark.kafka, *SPARK_MARKS]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
CANARIES = (PASSWORD, CLIENT_SECRET, KEY_PASSWORD, STORE_PASSWORD, "wrong-canary")
WRONG = "wrong-canary"
LIMITS_S = (5, 60)
WAYS = (
    "tls, authority as a file",
    "tls, authority as text of one line",
    "tls, authority in librdkafka's form",
    "tls, trust store of type PKCS12",
    "mutual tls, PEM file",
    "mutual tls, PEM texts with an encrypted key",
    "mutual tls, PKCS12",
    "mutual tls, JKS with a password of the key",
    "mutual tls, librdkafka's form",
    "plain",
    "plain, single quotes",
    "plain, librdkafka's form",
    "scram-sha-256",
    "scram-sha-512",
    "oauthbearer",
    "oauthbearer, librdkafka's form",
)
# the default suite has a way of each kind: the others differ in the form of the properties
FEW_WAYS = (
    "tls, authority as a file",
    "mutual tls, JKS with a password of the key",
    "plain, librdkafka's form",
    "scram-sha-512",
    "oauthbearer",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """A broker with a listener for each way; ``alice`` may do everything."""
    with secure_broker(tmp_path_factory.mktemp("secure")) as running:
        admin = KafkaAdmin({"bootstrap.servers": running.bootstrap_servers})
        admin.ensure_topic("open", 1)
        admin.committed("warm", [TopicPartition("open", 0)])  # the broker's own topics exist now
        TransactionalProducer({"bootstrap.servers": running.bootstrap_servers}, "warm").init()
        yield running


@pytest.fixture(scope="module")
def ways(broker: SecureBroker) -> dict[str, dict[str, str]]:
    """Client properties of each way; making the JKS store takes a JVM."""
    return dict(zip(WAYS, [*_with_tls(broker), *_with_sasl(broker)], strict=True))


def _with_tls(broker: SecureBroker) -> list[dict[str, str]]:
    keys, (chain, key) = broker.keys, broker.keys.text(USER)
    own, trusted = keys.stores()
    bare = {"bootstrap.servers": broker.servers("TLS"), "security.protocol": "SSL"}
    mutual = broker.client("MTLS", ssl_keystore_password=STORE_PASSWORD)
    text = " ".join(keys.ca.read_text().split("\n"))
    pem = {"ssl.keystore.type": "PEM", "ssl.key.password": KEY_PASSWORD}
    return [
        broker.client("TLS"),
        {**bare, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": text},
        {**bare, "ssl.ca.location": str(keys.ca)},
        {
            **bare,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(trusted),
            "ssl.truststore.password": STORE_PASSWORD,
        },
        broker.client(
            "MTLS",
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(keys.folder / f"{USER}.pem"),
        ),
        {
            **broker.client("MTLS"),
            **pem,
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": keys.encrypted_key(),
        },
        {**mutual, "ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(own)},
        {**mutual, "ssl.keystore.location": str(_jks(own)), "ssl.key.password": KEY_PASSWORD},
        {
            **bare,
            "bootstrap.servers": broker.servers("MTLS"),
            "ssl.ca.pem": keys.ca.read_text(),
            "ssl.certificate.pem": chain,
            "ssl.key.pem": key,
        },
    ]


def _with_sasl(broker: SecureBroker) -> list[dict[str, str]]:
    assert broker.oauth is not None
    plain = broker.client("PLAIN", sasl_mechanism="PLAIN")
    bearer = broker.client("OAUTH", sasl_mechanism="OAUTHBEARER") | {
        "sasl.oauthbearer.token.endpoint.url": f"{broker.oauth.issuer}/token"
    }
    login = f"username='{USER}' password='{PASSWORD}'"
    client = f'clientId="{USER}" clientSecret="{CLIENT_SECRET}" scope="{AUDIENCE}"'
    return [
        {**plain, "sasl.jaas.config": f"{PLAIN} required {login};".replace("'", '"')},
        {**plain, "sasl.jaas.config": f"{PLAIN} required {login};"},
        {
            **broker.client("PLAIN"),
            "sasl.mechanisms": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        },
        broker.scram(USER, PASSWORD, "SCRAM-SHA-256"),
        broker.scram(USER, PASSWORD),
        {**bearer, "sasl.jaas.config": f"{OAUTH} required {client};"},
        {
            **bearer,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.scope": AUDIENCE,
        },
    ]


def _jks(own: Path) -> Path:
    """The key store as JKS, its key with a password of its own."""
    target = own.with_suffix(".jks")
    target.unlink(missing_ok=True)
    tool = find_java().resolve().with_name("keytool")
    source = ("-srckeystore", own, "-srcstoretype", "PKCS12", "-srcstorepass", STORE_PASSWORD)
    taken = ("-destkeystore", target, "-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD)
    key = ("-srcalias", "client", "-destkeypass", KEY_PASSWORD)
    command = [tool, "-importkeystore", "-noprompt", *source, *taken, *key]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.mark.parametrize(
    "way",
    [way if way in FEW_WAYS else pytest.param(way, marks=pytest.mark.matrix) for way in WAYS],
)
def test_every_client_logs_in(
    ways: dict[str, dict[str, str]], spark_session: Session, way: str
) -> None:
    """A topic is made, written in a transaction with offsets, and read by both kinds of clients."""
    kafka = ways[way]
    topic = unique_name("secure")
    place = TopicPartition(topic, 0)
    admin = KafkaAdmin(kafka)
    assert admin.ensure_topic(topic, 1)
    producer = TransactionalProducer(kafka, topic)
    producer.init()
    producer.transact([ProducerMessage(topic, None, b"1")], group_id=topic, offsets={place: 7})
    assert admin.committed(topic, [place]) == {place: 7}
    assert admin.members(topic) == []
    reader = LogReader(kafka)
    reader.assign({place: 0})
    records = []
    while not records:  # the test's timeout bounds it
        records = reader.poll(1000)
    assert [record.value for record in records] == [b"1"]
    seen = BatchCollector()
    source_reader(spark_session, kafka).read_batch(OffsetRanges({place: 0}, {place: 1}), seen)
    assert seen.rows == [(0, 0)]
    for each in (producer, reader, admin):
        each.close()


def _refusal(attempt: Callable[[int], object], named: str) -> IcefloeError:
    """Return the error of an attempt with a time limit, in seconds.

    On a busy machine a short limit may end before the broker has refused: then the error does not
    have ``named``, and the attempt is repeated with a longer limit.
    """
    for limit_s in LIMITS_S:
        with pytest.raises(IcefloeError) as raised:
            attempt(limit_s)
        if named in f"{raised.value.code}: {raised.value}":
            break
    return raised.value


def _topics(kafka: dict[str, str], limit_s: int) -> None:
    admin = KafkaAdmin(kafka, timeout_s=limit_s)
    try:
        admin.topics()
    finally:
        admin.close()


def _spark_read(session: Session, kafka: dict[str, str], limit_s: int) -> None:
    limit = str(1000 * limit_s)
    short = {**kafka, "request.timeout.ms": limit, "default.api.timeout.ms": limit}
    place = TopicPartition("open", 0)
    source_reader(session, short).read_batch(OffsetRanges({place: 0}, {place: 1}), BatchCollector())


def _read_forever(kafka: dict[str, str]) -> None:
    reader = LogReader(kafka)
    reader.assign({TopicPartition("open", 0): 0})
    try:
        while True:  # the test's timeout bounds it
            reader.poll(500)
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("way", "code", "said"),
    [
        ("scram-sha-512", "kafka_authentication", "invalid cred"),
        pytest.param("plain", "kafka_authentication", "invalid user", marks=pytest.mark.matrix),
        pytest.param("oauthbearer", "kafka_authentication", "", marks=pytest.mark.matrix),
        ("tls, authority as a file", "kafka_tls", "cert"),
        pytest.param("scram-sha-256", "kafka_tls", "cert", marks=pytest.mark.matrix),
    ],
)
def test_refusals_name_their_reason(
    ways: dict[str, dict[str, str]], spark_session: Session, way: str, code: str, said: str
) -> None:
    """A wrong password, scope or authority is named by both kinds of clients, without a secret."""
    kafka = dict(ways[way])
    if code == "kafka_tls":
        trusted = Path(kafka["ssl.truststore.location"])
        kafka["ssl.truststore.location"] = str(trusted.with_name("other-ca.pem"))
    else:
        secret = AUDIENCE if way == "oauthbearer" else PASSWORD
        kafka["sasl.jaas.config"] = kafka["sasl.jaas.config"].replace(secret, WRONG)
    with_texts = [
        _refusal(partial(_topics, kafka), code),
        _refusal(partial(_spark_read, spark_session, kafka), code),
    ]
    for error in with_texts:
        assert said in str(error).lower()
    others = [
        _refusal(lambda limit_s: TransactionalProducer(kafka, "t").init(limit_s), code),
        _refusal(lambda _: _read_forever(kafka), code),
    ]
    for error in (*with_texts, *others):
        assert isinstance(error, RetriableError)
        assert error.code == code, str(error)
        assert not any(canary in str(error) for canary in CANARIES)


def test_a_missing_client_certificate_is_named(broker: SecureBroker) -> None:
    """The broker ends the handshake; the reason names TLS or the certificate."""
    error = _refusal(partial(_topics, broker.client("MTLS")), "kafka_tls")
    assert error.code == "kafka_tls", str(error)
    assert "certificate" in str(error)


def test_a_missing_acl_on_a_group_is_named(broker: SecureBroker) -> None:
    """The client repeats a refused request until the time is over; the error has the reason."""
    broker.set_password("reader", PASSWORD)
    broker.grant("reader", ("Describe", "Topic", "open"))
    kafka, place = broker.scram("reader", PASSWORD), TopicPartition("open", 0)
    refused = _refusal(
        lambda limit_s: KafkaAdmin(kafka, timeout_s=limit_s).committed("offsets", [place]),
        "needs the ACL Describe on Group offsets",
    )
    assert isinstance(refused, ConfigError)
    assert refused.code == "kafka_refused"
    assert "needs the ACL Describe on Group offsets" in str(refused)


def test_wrong_protocol_and_refused_connections_are_named(broker: SecureBroker) -> None:
    """A client without TLS at a TLS listener, and a port without a listener."""
    servers = {"bootstrap.servers": broker.servers("TLS")}
    bare = _refusal(partial(_topics, servers), "security.protocol")
    assert "security.protocol" in str(bare)
    assert bare.code == "broker_unavailable"
    closed = broker.client("TLS") | {"bootstrap.servers": "127.0.0.1:1"}
    away = _refusal(partial(_topics, closed), "Connection refused")
    assert "Connection refused" in str(away)


def test_key_stores_that_cannot_be_read_are_named(broker: SecureBroker) -> None:
    """A wrong password, an unknown type and a missing file are configuration errors."""
    own, _ = broker.keys.stores()
    mutual = broker.client("MTLS", ssl_keystore_location=str(own))
    for more, code in (
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.password": WRONG}, "kafka_store"),
        ({"ssl.keystore.location": str(_jks(own)), "ssl.keystore.password": WRONG}, "kafka_store"),
        ({"ssl.keystore.type": "BCFKS"}, "kafka_store_type"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/nowhere"}, "kafka_store"),
    ):
        with pytest.raises(ConfigError) as raised:
            KafkaAdmin({**mutual, **more})
        assert raised.value.code == code, more
        assert "ssl.keystore" in str(raised.value)
        assert WRONG not in str(raised.value)
