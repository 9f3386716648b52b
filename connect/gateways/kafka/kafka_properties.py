"""Kafka's client properties by their Java names, and what librdkafka calls them.

Connector JSON and node properties use the Java names everywhere; the node may also use librdkafka's
names. Spark's Kafka source gets Java's, all other clients get librdkafka's. What librdkafka has no
notion of (deserializers, interceptors, ``max.poll.records``) is left out, so that the JSON of an
existing connector remains valid.
"""

from __future__ import annotations

from collections.abc import Mapping

from connect.config.keys.client_names import LIBRDKAFKA_ONLY, LIBRDKAFKA_SECURITY
from connect.gateways.kafka.kafka_login import java_login, librdkafka_login
from connect.gateways.kafka.key_stores import java_tls, librdkafka_tls

_SAME = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "bootstrap.servers",
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.type",
        "connections.max.idle.ms",
        "delivery.timeout.ms",
        "enable.idempotence",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "ssl.key.password",
        "transaction.timeout.ms",
    }
)
_RENAMED = {
    "batch.size": "batch.size",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "session.timeout.ms": "session.timeout.ms",
    "heartbeat.interval.ms": "heartbeat.interval.ms",
    "max.poll.interval.ms": "max.poll.interval.ms",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
    "ssl.cipher.suites": "ssl.cipher.suites",
}
SECURITY_PREFIXES = ("sasl.", "ssl.", "security.")
_PRODUCER_ONLY = frozenset(
    {
        "acks",
        "batch.size",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "linger.ms",
        "message.max.bytes",
        "transaction.timeout.ms",
    }
)
_CONSUMER_ONLY = frozenset(
    {
        "check.crcs",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "fetch.wait.max.ms",
        "heartbeat.interval.ms",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "session.timeout.ms",
    }
)


def to_java(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties for a Java client: librdkafka's names of logins and keys are translated.

    Args:
        properties: Java-named properties, which may contain librdkafka's names.

    Raises:
        ConfigError: as ``to_librdkafka``.
    """
    foreign = LIBRDKAFKA_ONLY | LIBRDKAFKA_SECURITY
    own = {**java_tls(properties), **java_login(properties)}
    return {name: value for name, value in own.items() if name not in foreign}


def client_properties(
    node: Mapping[str, str], *overrides: Mapping[str, str], prefix: str | None = None
) -> dict[str, str]:
    """Client properties by their Java names: the node's, its prefixed ones, then overrides.

    Args:
        node: node properties; keys that are no client properties are left out.
        overrides: connector overrides, prefix already removed; later ones win, as ``overridden``.
        prefix: ``consumer.``, ``producer.`` or ``admin.``: node properties that start so override
            the node's plain ones.

    Returns:
        Java-named properties, what librdkafka and Spark's source understand of them.
    """
    client_names = _SAME | _RENAMED.keys() | LIBRDKAFKA_ONLY
    merged = {k: v for k, v in node.items() if k in client_names or k.startswith(("sasl.", "ssl."))}
    if prefix:
        merged.update({k.removeprefix(prefix): v for k, v in node.items() if k.startswith(prefix)})
    overriding: dict[str, str] = {}
    for override in overrides:
        overriding.update(override)
    return overridden(merged, overriding)


def overridden(own: Mapping[str, str], overriding: Mapping[str, str]) -> dict[str, str]:
    """The node's client properties with a connector's over them.

    The node's login and TLS settings go to the node's own servers only: a connector that names
    any other server inherits no ``sasl.*``, ``ssl.*`` or ``security.*`` property.

    Args:
        own: properties that include the node's login.
        overriding: all overrides of one client.
    """
    if servers(overriding) <= servers(own):
        return {**own, **overriding}
    return {k: v for k, v in own.items() if not k.startswith(SECURITY_PREFIXES)} | dict(overriding)


def servers(properties: Mapping[str, str]) -> frozenset[str]:
    """The servers that properties name, in lower case."""
    listed = properties.get("bootstrap.servers", "").lower().split(",")
    return frozenset(server.strip() for server in listed if server.strip())


def to_librdkafka(properties: Mapping[str, str], *, role: str) -> dict[str, str | int]:
    """Translate Java-named client properties.

    Args:
        properties: Java-named properties.
        role: ``producer``, ``consumer`` or ``admin``; properties of other roles are left out,
            as librdkafka warns about them.

    Returns:
        librdkafka's configuration.

    Raises:
        ConfigError: a store or a login cannot be used: ``kafka_store``, ``kafka_store_type``,
            ``kafka_jaas``, ``kafka_kerberos``, ``kafka_msk_iam``.
    """
    out: dict[str, str | int] = {}
    for key, value in properties.items():
        if key in _SAME or key in LIBRDKAFKA_ONLY:
            out[key] = value
        elif key in _RENAMED:
            out[_RENAMED[key]] = value
    out.update(librdkafka_tls(properties))
    out.update(librdkafka_login(properties))
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        out["ssl.endpoint.identification.algorithm"] = "none"
    unwanted: frozenset[str] = {
        "producer": _CONSUMER_ONLY,
        "consumer": _PRODUCER_ONLY,
        "admin": _PRODUCER_ONLY | _CONSUMER_ONLY,
    }[role]
    return {k: v for k, v in out.items() if k not in unwanted}
