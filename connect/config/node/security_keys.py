"""Keys of the node's properties that say what connectors may reach."""

from __future__ import annotations

from connect.config.key import Key
from connect.config.local_paths import LOCAL_KEY

_REACH = "What connectors may reach"

SECURITY_KEYS: tuple[Key, ...] = (
    Key(
        "connector.client.config.override.policy",
        "STRING",
        "Which client properties connectors may override, as in Kafka Connect: All (without "
        "classes, files and logins), None, or Principal. Where the API has users, servers, "
        "protocol, login and TLS are overridable only when this is set.",
        "All",
        "MEDIUM",
        _REACH,
        choices=("All", "None", "Principal"),
    ),
    Key(
        "icefloe.kafka.servers.allowed",
        "LIST",
        "Brokers (`host:port`) that connectors may name besides the node's own; `*` is every one. "
        "Without it: every one, but none where the API has users. No other broker gets the "
        "node's login.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "icefloe.hosts.allowed",
        "LIST",
        "Hosts of catalogs, schema registries, token endpoints and object stores that connectors "
        "may reach: names, `*.` before a domain, addresses, networks (`10.0.0.0/8`), or `*`. "
        "Without it: every one; where the API has users, no loopback, link-local or metadata "
        "address.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        LOCAL_KEY,
        "LIST",
        "Folders of the node's machines below which connectors may keep tables, warehouses, "
        "SQLite catalogs and certificates. Without it: every folder, but none where the API has "
        "users.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "icefloe.ambient.credentials.allowed",
        "BOOLEAN",
        "Let connectors' clients use what the node's machine and environment offer: cloud "
        "credentials, profiles and roles, logins of `.netrc` and libpq's files, proxies. Without "
        "it: true; false where the API has users.",
        None,
        "MEDIUM",
        _REACH,
    ),
)
