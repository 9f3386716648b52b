"""Keys of the node's properties file: what connectors may reach, and what they may be answered."""

from __future__ import annotations

from typing import Final

from connect.config.key import Key, between
from connect.config.local_paths import LOCAL_KEY

_REACH: Final = "What connectors may reach"

ACCESS_KEYS: tuple[Key, ...] = (
    Key(
        "connector.client.config.override.policy",
        "STRING",
        "Client properties that connectors may override, as in Kafka Connect: All (except "
        "classes, files and credentials), None, or Principal. If the REST API has users, servers, "
        "protocol, credentials and TLS can be overridden only if this key is set.",
        "All",
        "MEDIUM",
        _REACH,
        choices=("All", "None", "Principal"),
    ),
    Key(
        "icefloe.kafka.servers.allowed",
        "LIST",
        "Brokers (`host:port`) that connectors may use in addition to the node's brokers; `*` "
        "allows all. Default: all, or none if the REST API has users. Other brokers never receive "
        "the node's credentials.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "icefloe.hosts.allowed",
        "LIST",
        "Hosts of catalogs, schema registries, token endpoints and object stores that connectors "
        "may access: names, domains with `*.`, addresses, networks (`10.0.0.0/8`), or `*`. "
        "Default: all; if the REST API has users, all except loopback, link-local and metadata "
        "addresses, and of object stores with S3's protocol only those of Amazon and Google.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        LOCAL_KEY,
        "LIST",
        "Local folders that connectors may use for tables, warehouses, SQLite catalogs and "
        "certificates. Default: all, or none if the REST API has users. If `spark.master` names a "
        "cluster, tables and warehouses may only use listed folders.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "icefloe.ambient.credentials.allowed",
        "BOOLEAN",
        "Allow clients of connectors to use credentials of the node's machine and environment: "
        "cloud credentials, profiles and roles, `.netrc`, libpq's files and proxies. Default: "
        "true, or false if the REST API has users.",
        None,
        "MEDIUM",
        _REACH,
    ),
    Key(
        "icefloe.catalog.answer.bytes.max",
        "LONG",
        "Largest answer of a REST catalog that is read, after decompression. An answer contains "
        "the metadata of a table, which grows with its snapshots.",
        "268435456",
        "LOW",
        _REACH,
        unit="bytes",
        check=between(2**20, 2**40),
    ),
    Key(
        "icefloe.catalog.answer.ms.max",
        "LONG",
        "Time until a REST catalog has sent a whole answer, in addition to the limit between two "
        "bytes.",
        "300000",
        "LOW",
        _REACH,
        unit="ms",
        check=between(1_000, 86_400_000),
    ),
)
