"""Keys of lineage events in the node's properties file, with OpenLineage's names of options."""

from __future__ import annotations

from typing import Final

from connect.config.key import Key, between

_LINEAGE = "Lineage"
LINEAGE_KAFKA_PREFIX: Final = "icefloe.lineage.transport.config."

LINEAGE_KEYS: tuple[Key, ...] = (
    Key(
        "icefloe.lineage.enabled",
        "BOOLEAN",
        "Send OpenLineage events of the connectors whose coordinator runs on this node. Needs the "
        "extra `lineage`.",
        "false",
        "MEDIUM",
        _LINEAGE,
    ),
    Key(
        "icefloe.lineage.namespace",
        "STRING",
        "Namespace of the jobs, which are named like their connectors. Default: `group.id`.",
        None,
        "LOW",
        _LINEAGE,
    ),
    Key(
        "icefloe.lineage.interval.ms",
        "LONG",
        "Shortest time between two events of a connector that runs.",
        "60000",
        "LOW",
        _LINEAGE,
        unit="ms",
        check=between(100, 86_400_000),
    ),
    Key(
        "icefloe.lineage.transport.type",
        "STRING",
        "Where events are sent: `http` posts them to `transport.url`, `kafka` produces them to "
        "`transport.topic`, `file` appends them to `transport.log_file_path`, one JSON per line.",
        "http",
        "MEDIUM",
        _LINEAGE,
        choices=("http", "kafka", "file"),
    ),
    Key(
        "icefloe.lineage.transport.url",
        "STRING",
        "Base address of the receiver. Default: the environment variable `OPENLINEAGE_URL`.",
        None,
        "MEDIUM",
        _LINEAGE,
    ),
    Key(
        "icefloe.lineage.transport.endpoint",
        "STRING",
        "Path of the receiver. Default: the environment variable `OPENLINEAGE_ENDPOINT`, or "
        "`api/v1/lineage`.",
        None,
        "LOW",
        _LINEAGE,
    ),
    Key(
        "icefloe.lineage.transport.auth.apikey",
        "PASSWORD",
        "API key, sent as `Authorization: Bearer <key>`. Default: the environment variable "
        "`OPENLINEAGE_API_KEY`.",
        None,
        "MEDIUM",
        _LINEAGE,
        is_secret=True,
    ),
    Key(
        "icefloe.lineage.transport.timeout",
        "INT",
        "Timeout of a request, or of the delivery of a Kafka record.",
        "5",
        "LOW",
        _LINEAGE,
        unit="s",
        check=between(1, 300),
    ),
    Key(
        "icefloe.lineage.transport.compression",
        "STRING",
        "Compression of HTTP requests.",
        "none",
        "LOW",
        _LINEAGE,
        choices=("none", "gzip"),
    ),
    Key(
        "icefloe.lineage.transport.topic",
        "STRING",
        "Topic of events. The key of a record is `run:<namespace>/<connector>`.",
        None,
        "MEDIUM",
        _LINEAGE,
    ),
    Key(
        "icefloe.lineage.transport.log_file_path",
        "STRING",
        "Local file to which events are appended. Its folder must exist.",
        None,
        "MEDIUM",
        _LINEAGE,
    ),
)
