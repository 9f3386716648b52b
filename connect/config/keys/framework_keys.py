"""Keys of all sink connectors, as declared in Kafka Connect 4.3."""

from __future__ import annotations

from typing import Any, Literal

from connect.config.key import REQUIRED, Key, Prefix, at_least, not_empty, not_null, one_of

COMMON = "Common"
TRANSFORMS = "Transforms"
PREDICATES = "Predicates"
ERRORS = "Error Handling"
GROUPS = (COMMON, TRANSFORMS, PREDICATES, ERRORS)

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_RETRIED = (
    "errors of unavailable services are retried without limit and never tolerated; other errors "
    "are not retried"
)


def _name(value: Any) -> str | None:
    if value is None or value == "":
        return not_empty(value)
    codes = [str(ord(c)) for c in value if ord(c) < 32 or 127 <= ord(c) < 160]
    if codes:
        return (
            "String may not contain control sequences but had the following ASCII chars: "
            + ", ".join(codes)
        )
    if value in {".", ".."} or any(c in "/\\%{}" for c in value):
        return "the REST API cannot address this name; do not use / \\ % { }"
    return None


def _no_duplicates(value: Any) -> str | None:
    if value is None:
        return not_null(value)
    return None if len(set(value or ())) == len(value or ()) else "Duplicate alias provided."


def _short_name(value: Any) -> str | None:
    """Check the length of a topic name; empty is valid."""
    return None if len(value or "") <= 249 else "a topic name has at most 249 characters"


ConverterRole = Literal["key", "value", "header"]


def _converter(kind: ConverterRole, order: int) -> tuple[Key, Key]:
    default = HEADER_CONVERTER if kind == "header" else JSON_CONVERTER
    return (
        Key(
            f"{kind}.converter",
            "CLASS",
            f"Converter of record {kind}s; the default is the node's converter. "
            f"Its options have the prefix `{kind}.converter.`.",
            default,
            "LOW",
            COMMON,
            order,
            "SHORT",
            f"{kind.capitalize()} converter class",
        ),
        Key(
            f"{kind}.converter.plugin.version",
            "STRING",
            f"Version of the {kind} converter.",
            None,
            "LOW",
            COMMON,
            order + 1,
            "SHORT",
            f"{kind.capitalize()} converter version",
            java_only="one version of each converter is installed",
        ),
    )


COMMON_KEYS: tuple[Key, ...] = (
    Key(
        "name",
        "STRING",
        "Name of the connector, unique in the cluster.",
        REQUIRED,
        "HIGH",
        COMMON,
        1,
        "MEDIUM",
        "Connector name",
        check=_name,
    ),
    Key(
        "connector.class",
        "STRING",
        "Class of the connector: full name, simple name, or simple name without `Connector`.",
        REQUIRED,
        "HIGH",
        COMMON,
        2,
        "LONG",
        "Connector class",
    ),
    Key(
        "connector.plugin.version",
        "STRING",
        "Version of the connector.",
        None,
        "MEDIUM",
        COMMON,
        3,
        "MEDIUM",
        "Connector version",
        java_only="one version of the connector is installed",
    ),
    Key(
        "tasks.max",
        "INT",
        "Number of tasks. A worker process runs the tasks that are placed on it together, with all "
        "cores; see also `icefloe.tasks.per.worker`.",
        "1",
        "HIGH",
        COMMON,
        4,
        "SHORT",
        "Tasks max",
        check=at_least(1),
    ),
    Key(
        "tasks.max.enforce",
        "BOOLEAN",
        "Kept for compatibility.",
        "true",
        "LOW",
        COMMON,
        5,
        "SHORT",
        "Enforce tasks max",
        java_only="`tasks.max` is always enforced",
    ),
    *_converter("key", 6),
    *_converter("value", 8),
    *_converter("header", 10),
    Key(
        "transforms",
        "LIST",
        "Aliases of the transformations in order; their keys have the prefix "
        "`transforms.<alias>.`.",
        "",
        "LOW",
        TRANSFORMS,
        12,
        "LONG",
        "Transforms",
        check=_no_duplicates,
    ),
    Key(
        "predicates",
        "LIST",
        "Aliases of the predicates; their keys have the prefix `predicates.<alias>.`.",
        "",
        "LOW",
        PREDICATES,
        13,
        "LONG",
        "Predicates",
        check=_no_duplicates,
    ),
    Key(
        "config.action.reload",
        "STRING",
        "Action when the value of a configuration provider changes.",
        "restart",
        "LOW",
        COMMON,
        14,
        "MEDIUM",
        "Reload Action",
        check=one_of(("none", "restart")),
        java_only="changed values are used while tasks run (`icefloe.secrets.refresh.ms`)",
    ),
    Key(
        "errors.retry.timeout",
        "LONG",
        "Maximum duration of retries of a failed operation; 0 disables retries, -1 has no limit.",
        "0",
        "MEDIUM",
        ERRORS,
        1,
        "MEDIUM",
        "Retry Timeout for Errors",
        unit="ms",
        java_only=_RETRIED,
    ),
    Key(
        "errors.retry.delay.max.ms",
        "LONG",
        "Maximum delay between retries.",
        "60000",
        "MEDIUM",
        ERRORS,
        2,
        "MEDIUM",
        "Maximum Delay Between Retries for Errors",
        unit="ms",
        java_only=_RETRIED,
    ),
    Key(
        "errors.tolerance",
        "STRING",
        "`none`: the first record with an error fails the task. `all`: records with errors are "
        "skipped, counted, and sent to the dead letter topic if one is set.",
        "none",
        "MEDIUM",
        ERRORS,
        3,
        "SHORT",
        "Error Tolerance",
        check=one_of(("none", "all")),
    ),
    Key(
        "errors.log.enable",
        "BOOLEAN",
        "Log each record with an error.",
        "false",
        "MEDIUM",
        ERRORS,
        4,
        "SHORT",
        "Log Errors",
    ),
    Key(
        "errors.log.include.messages",
        "BOOLEAN",
        "Include topic, partition, offset and timestamp of the record in the log.",
        "false",
        "MEDIUM",
        ERRORS,
        5,
        "SHORT",
        "Log Error Details",
    ),
)

SINK_KEYS: tuple[Key, ...] = (
    Key(
        "topics",
        "LIST",
        "Topics to read. Exactly one of `topics` and `topics.regex` must be set.",
        "",
        "HIGH",
        COMMON,
        4,
        "LONG",
        "Topics",
    ),
    Key(
        "topics.regex",
        "STRING",
        "Regular expression of the topics to read; it must match the whole topic name.",
        "",
        "HIGH",
        COMMON,
        4,
        "LONG",
        "Topics regex",
    ),
    Key(
        "errors.deadletterqueue.topic.name",
        "STRING",
        "Dead letter topic for records with errors; empty for none.",
        "",
        "MEDIUM",
        ERRORS,
        6,
        "MEDIUM",
        "Dead Letter Queue Topic Name",
        check=_short_name,
    ),
    Key(
        "errors.deadletterqueue.topic.replication.factor",
        "SHORT",
        "Replication factor of a new dead letter topic.",
        "3",
        "MEDIUM",
        ERRORS,
        7,
        "MEDIUM",
        "Dead Letter Queue Topic Replication Factor",
    ),
    Key(
        "errors.deadletterqueue.context.headers.enable",
        "BOOLEAN",
        "Add the `__connect.errors.*` headers to dead letters.",
        "false",
        "MEDIUM",
        ERRORS,
        8,
        "MEDIUM",
        "Enable Error Context Headers",
    ),
)

PREFIXES: tuple[Prefix, ...] = (
    Prefix("key.converter.", "Options of the key converter.", "key.converter.schemas.enable"),
    Prefix("value.converter.", "Options of the value converter.", "value.converter.schemas.enable"),
    Prefix("header.converter.", "Options of the header converter.", "header.converter.type"),
    Prefix("transforms.", "Class and options of a transformation, by alias.", "transforms.a.type"),
    Prefix("predicates.", "Class and options of a predicate, by alias.", "predicates.p.pattern"),
    Prefix(
        "consumer.override.",
        "Kafka consumer property for the source topics. Properties with classes, files and "
        "libraries are not allowed.",
        "consumer.override.auto.offset.reset",
        is_secret_bearing=True,
    ),
    Prefix(
        "producer.override.",
        "Kafka producer property for control events and dead letters. Properties with classes, "
        "files and libraries are not allowed.",
        "producer.override.compression.type",
        is_secret_bearing=True,
    ),
)
