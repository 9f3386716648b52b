"""Properties of Kafka's clients: ``-K`` and the variables of kafka-delta-ingest.

Rules of this file:
- Logins and TLS hold for every client of the node, also connection settings. All other settings
  are those of consumers, as in kafka-delta-ingest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from connect.config.keys.client_names import LIBRDKAFKA_ONLY
from connect.errors import ConfigError
from connect.operations.ingest.placeholder_secrets import from_environment

RESET: Final = "auto.offset.reset"
_SECURITY: Final = ("sasl.", "ssl.", "security.")
_PEM: Final = {
    "KAFKA_DELTA_INGEST_CERT": "ssl.certificate.pem",
    "KAFKA_DELTA_INGEST_KEY": "ssl.key.pem",
    "KAFKA_DELTA_INGEST_CA": "ssl.ca.pem",
}
_SCRAM: Final = "KAFKA_DELTA_INGEST_SCRAM_JSON"
_JAVA_NAMES: Final = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "metadata.broker.list": "bootstrap.servers",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
}
_FIXED: Final = {
    "bootstrap.servers": "set --kafka",
    "enable.auto.commit": "source offsets are committed with the announced files",
    "group.id": "source offsets are in the group connect-<app_id>",
}
_OF_CONSUMERS: Final = frozenset({"queued.min.messages"})
_CONNECTION: Final = (LIBRDKAFKA_ONLY - _OF_CONSUMERS) | {
    "client.dns.lookup",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
}
_ROLES: Final = ("consumer.", "producer.", "admin.")


def environment_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that the variables of kafka-delta-ingest set.

    Raises:
        ConfigError: ``KAFKA_DELTA_INGEST_SCRAM_JSON`` has no user or no password.
    """
    properties = {key: from_environment(name) for name, key in _PEM.items() if environ.get(name)}
    if text := environ.get(_SCRAM):
        try:
            login = json.loads(text)
            user, password = login["username"], login["password"]
        except (ValueError, KeyError, TypeError):
            # the text has the password: it must not be in the message
            raise ConfigError(
                f'{_SCRAM} must be JSON: {{"username": "…", "password": "…"}}'
            ) from None
        properties |= {"sasl.username": str(user), "sasl.password": str(password)}
    return properties


def node_properties(settings: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    """Return the node properties of client settings; ``auto.offset.reset`` is a connector's.

    Args:
        settings: by librdkafka's names or Java's.
        notes: receives the settings without effect.
    """
    properties: dict[str, str] = {}
    for setting, value in settings.items():
        name = _JAVA_NAMES.get(setting, setting)
        if name in _FIXED:
            notes.append(f"-K {setting} has no effect: {_FIXED[name]}")
        elif name.startswith(_SECURITY):
            properties[name] = value
        elif name in _CONNECTION:
            properties |= dict.fromkeys((role + name for role in _ROLES), value)
        elif name != RESET:
            properties["consumer." + name] = value
    return properties
