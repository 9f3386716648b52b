"""Which Kafka client properties a connector may set, and of what type they are.

Rules of this file:
- Which names a connector may set is said in ``client_names``, and only those reach a client.
- Names no client knows pass, as in Kafka, where clients only warn about them, unless they look
  like what is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from connect.config.client_names import ALLOWED, REFUSED
from connect.config.keys import Importance, Key, KeyType, one_of, typed

PREFIXES = ("consumer.override.", "producer.override.", "iceberg.kafka.")

_LOOKS_REFUSED = re.compile(
    r".*\.(class|classes|location|path|paths|file|dir|cmd|url|jaas\.config|reporters|providers)"
    r"|.*\.(deserializer|serializer|callback\.handler\..*)|library\..*|.*\.library\..*"
    r"|spark\..*|config\.providers.*|plugin\..*|debug|.*_cb"
)

_REFUSAL = (
    "{name} may not be set by a connector: names of classes, files, libraries, logins, commands "
    "and services belong to the node's properties."
)


def _key(name: str, kind: KeyType, default: str | None, importance: Importance = "LOW") -> Key:
    return Key(name, kind, f"Kafka client property `{name}`.", default, importance)


def _choice(name: str, default: str, importance: Importance, *choices: str) -> Key:
    check = one_of(choices)
    return Key(name, "STRING", f"Kafka client property `{name}`.", default, importance, check=check)


CLIENT_KEYS: Mapping[str, Key] = {
    key.name: key
    for key in (
        _key("auto.commit.interval.ms", "INT", "5000"),
        _choice("auto.offset.reset", "latest", "MEDIUM", "latest", "earliest", "none"),
        _key("batch.size", "INT", "16384", "MEDIUM"),
        _key("buffer.memory", "LONG", "33554432", "HIGH"),
        _key("check.crcs", "BOOLEAN", "true"),
        _choice("compression.type", "none", "HIGH", "none", "gzip", "snappy", "lz4", "zstd"),
        _key("connections.max.idle.ms", "LONG", "540000", "MEDIUM"),
        _key("default.api.timeout.ms", "INT", "60000", "MEDIUM"),
        _key("delivery.timeout.ms", "INT", "120000", "MEDIUM"),
        _key("enable.auto.commit", "BOOLEAN", "true", "MEDIUM"),
        _key("enable.idempotence", "BOOLEAN", "true"),
        _key("exclude.internal.topics", "BOOLEAN", "true", "MEDIUM"),
        _key("fetch.max.bytes", "INT", "52428800", "MEDIUM"),
        _key("fetch.max.wait.ms", "INT", "500"),
        _key("fetch.min.bytes", "INT", "1", "HIGH"),
        _key("heartbeat.interval.ms", "INT", "3000", "HIGH"),
        _key("linger.ms", "LONG", "5", "MEDIUM"),
        _key("max.block.ms", "LONG", "60000", "MEDIUM"),
        _key("max.in.flight.requests.per.connection", "INT", "5"),
        _key("max.partition.fetch.bytes", "INT", "1048576", "HIGH"),
        _key("max.poll.interval.ms", "INT", "300000", "MEDIUM"),
        _key("max.poll.records", "INT", "500", "MEDIUM"),
        _key("max.request.size", "INT", "1048576", "MEDIUM"),
        _key("metadata.max.age.ms", "LONG", "300000"),
        _key("receive.buffer.bytes", "INT", "65536", "MEDIUM"),
        _key("reconnect.backoff.max.ms", "LONG", "1000"),
        _key("reconnect.backoff.ms", "LONG", "50"),
        _key("request.timeout.ms", "INT", "30000", "MEDIUM"),
        _key("retries", "INT", "2147483647", "HIGH"),
        _key("retry.backoff.max.ms", "LONG", "1000"),
        _key("retry.backoff.ms", "LONG", "100"),
        _key("send.buffer.bytes", "INT", "131072", "MEDIUM"),
        _key("session.timeout.ms", "INT", "45000", "HIGH"),
        _key("transaction.timeout.ms", "INT", "60000"),
    )
}


def split(raw: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """The properties below a prefix, prefix removed, nulls left out."""
    return {
        name.removeprefix(prefix): value
        for name, value in raw.items()
        if name.startswith(prefix) and name != prefix and value is not None
    }


def is_refused(name: str) -> bool:
    """Whether no connector may set a client property, whatever its value."""
    return name in REFUSED or (name not in ALLOWED and bool(_LOOKS_REFUSED.fullmatch(name)))


def handed_on(raw: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """The overrides below a prefix that reach a client."""
    return {name: value for name, value in split(raw, prefix).items() if name in ALLOWED}


def override_errors(raw: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Sentences about client properties in a connector's configuration, with their keys."""
    for prefix in PREFIXES:
        for name, value in split(raw, prefix).items():
            full = prefix + name
            if is_refused(name):
                yield full, _REFUSAL.format(name=full)
            elif name in CLIENT_KEYS:
                yield from ((full, why) for why in typed(CLIENT_KEYS[name], value).errors)
