"""Which Kafka client properties a connector may set, and of what type they are.

Rules of this file:
- A connector must not reach outside its records: no class names, no file or library paths, no
  login modules, no metadata services. Such names are refused whatever their value.
- Other unknown names pass, as in Kafka, where clients only warn about them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from connect.config.keys import Key, KeyType, one_of, typed

PREFIXES = ("consumer.override.", "producer.override.", "iceberg.kafka.")

_REFUSED = re.compile(
    r".*\.(class|classes|location|path|paths|file|dir|jaas\.config|reporters|providers)"
    r"|.*\.(deserializer|serializer|strategy|callback\.handler\..*)"
    r"|(key|value)\.(de)?serializer|interceptor\.classes|spark\..*|config\.providers.*"
    r"|sasl\.oauthbearer\..*(url|path|file).*|plugin\..*|debug|.*_cb"
)

_REFUSAL = (
    "{name} may not be set by a connector: names of classes, files, libraries, logins and services "
    "belong to the node's properties."
)
_TYPES: Mapping[str, KeyType] = {
    "auto.commit.interval.ms": "INT",
    "batch.size": "INT",
    "buffer.memory": "LONG",
    "check.crcs": "BOOLEAN",
    "connections.max.idle.ms": "LONG",
    "default.api.timeout.ms": "INT",
    "delivery.timeout.ms": "INT",
    "enable.auto.commit": "BOOLEAN",
    "enable.idempotence": "BOOLEAN",
    "exclude.internal.topics": "BOOLEAN",
    "fetch.max.bytes": "INT",
    "fetch.max.wait.ms": "INT",
    "fetch.min.bytes": "INT",
    "heartbeat.interval.ms": "INT",
    "linger.ms": "LONG",
    "max.block.ms": "LONG",
    "max.in.flight.requests.per.connection": "INT",
    "max.partition.fetch.bytes": "INT",
    "max.poll.interval.ms": "INT",
    "max.poll.records": "INT",
    "max.request.size": "INT",
    "metadata.max.age.ms": "LONG",
    "receive.buffer.bytes": "INT",
    "reconnect.backoff.max.ms": "LONG",
    "reconnect.backoff.ms": "LONG",
    "request.timeout.ms": "INT",
    "retries": "INT",
    "retry.backoff.max.ms": "LONG",
    "retry.backoff.ms": "LONG",
    "send.buffer.bytes": "INT",
    "session.timeout.ms": "INT",
    "transaction.timeout.ms": "INT",
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "auto.offset.reset": ("latest", "earliest"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
}


def split(raw: Mapping[str, str | None], prefix: str) -> dict[str, str]:
    """The properties below a prefix, prefix removed, nulls left out."""
    return {
        name.removeprefix(prefix): value
        for name, value in raw.items()
        if name.startswith(prefix) and name != prefix and value is not None
    }


def override_errors(raw: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Sentences about client properties in a connector's configuration, with their keys."""
    for prefix in PREFIXES:
        for name, value in split(raw, prefix).items():
            full = prefix + name
            if _REFUSED.fullmatch(name):
                yield full, _REFUSAL.format(name=full)
            elif name in _TYPES:
                yield from ((full, e) for e in typed(Key(name, _TYPES[name], ""), value).errors)
            elif name in _CHOICES:
                check = one_of(_CHOICES[name])
                yield from (
                    (full, e) for e in typed(Key(name, "STRING", "", check=check), value).errors
                )
