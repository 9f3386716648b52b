"""Keys of the converters whose schemas are in a registry or a file, below ``value.converter.``.

Names and defaults are Confluent's; what only its serializers use is accepted without effect.
"""

from __future__ import annotations

from typing import Any, Final

from connect.config.key import REQUIRED, Importance, Key, KeyType, at_least, between, one_of

CONVERTER_TYPE: Final = Key(
    "converter.type",
    "STRING",
    "Whether it is for keys, values or headers.",
    REQUIRED,
    "LOW",
    check=one_of(("key", "value", "header")),
)


def _word(*choices: str) -> Any:
    check = one_of(choices)
    return lambda value: None if value is None else check(value.strip().upper())


COMPRESSION: Final = Key(
    "payload.compression",
    "STRING",
    "Compression of each payload, done by the producer's application: `none` or `gzip`. What "
    "Kafka compresses itself needs nothing.",
    "none",
    "LOW",
    check=lambda value: one_of(("none", "gzip"))((value or "none").strip().lower()),
)

_TLS: Final = (
    ("truststore.location", "STRING", "PEM file of the certificates to trust."),
    ("truststore.type", "STRING", "`PEM`; other kinds cannot be read outside Java."),
    ("truststore.certificates", "PASSWORD", "Certificates to trust, as PEM text."),
    ("keystore.location", "STRING", "PEM file of the client's key and certificate chain."),
    ("keystore.type", "STRING", "`PEM`; other kinds cannot be read outside Java."),
    ("key.password", "PASSWORD", "Password of the client's key."),
    (
        "endpoint.identification.algorithm",
        "STRING",
        "`https` compares the host's name with its certificate, empty does not.",
    ),
)


def _key(
    name: str,
    doc: str,
    default: str | None = None,
    kind: KeyType = "STRING",
    importance: Importance = "MEDIUM",
    **more: Any,
) -> Key:
    return Key(name, kind, doc, default, importance, **more)


def _unused(name: str, default: str | None, kind: KeyType, why: str) -> Key:
    return Key(name, kind, f"Known to Confluent's client: {why}.", default, "LOW", java_only=why)


REGISTRY_KEYS: Final[tuple[Key, ...]] = (
    _key(
        "schema.registry.url",
        "Addresses of the registry, separated by commas, tried in order. Needed unless "
        "`schema.file` is set.",
        importance="HIGH",
    ),
    _key(
        "basic.auth.credentials.source",
        "Where user and password are: `URL` or `USER_INFO`.",
        "URL",
        check=_word("URL", "USER_INFO", "SASL_INHERIT"),
    ),
    _key("basic.auth.user.info", "`<user>:<password>`.", kind="PASSWORD", is_secret=True),
    _key(
        "schema.registry.basic.auth.user.info",
        "Older name of `basic.auth.user.info`.",
        kind="PASSWORD",
        is_secret=True,
        importance="LOW",
    ),
    _key(
        "bearer.auth.credentials.source",
        "Where tokens come from: `STATIC_TOKEN` or `OAUTHBEARER`.",
        check=_word("STATIC_TOKEN", "OAUTHBEARER"),
    ),
    _key("bearer.auth.token", "A token that does not change.", kind="PASSWORD", is_secret=True),
    _key("bearer.auth.issuer.endpoint.url", "Token endpoint of OAuth client credentials."),
    _key("bearer.auth.client.id", "Client of the token endpoint."),
    _key("bearer.auth.client.secret", "Its secret.", kind="PASSWORD", is_secret=True),
    _key("bearer.auth.scope", "Scope to ask for."),
    _key("bearer.auth.logical.cluster", "Sent as `target-sr-cluster`."),
    _key("bearer.auth.identity.pool.id", "Sent as `Confluent-Identity-Pool-Id`."),
    *(
        Key(
            f"schema.registry.ssl.{name}",
            "PASSWORD" if kind == "PASSWORD" else "STRING",
            doc,
            None,
            "MEDIUM",
            is_secret=kind == "PASSWORD",
        )
        for name, kind, doc in _TLS
    ),
    _key("proxy.host", "HTTP proxy.", importance="LOW"),
    _key("proxy.port", "Its port.", kind="INT", importance="LOW"),
    _key(
        "http.connect.timeout.ms",
        "Longest wait for a connection.",
        "10000",
        "INT",
        unit="ms",
        check=at_least(1),
    ),
    _key(
        "http.read.timeout.ms",
        "Longest wait for an answer.",
        "60000",
        "INT",
        unit="ms",
        check=at_least(1),
    ),
    _key(
        "max.retries",
        "How often a request is sent again before the task waits as for any outage.",
        "3",
        "INT",
        check=between(0, 100),
    ),
    _key(
        "retries.wait.ms",
        "Pause before the first repetition; it doubles.",
        "1000",
        "INT",
        unit="ms",
        check=at_least(1),
    ),
    _key(
        "retries.max.wait.ms",
        "Longest pause.",
        "20000",
        "INT",
        unit="ms",
        check=at_least(1),
    ),
    _key(
        "schemas.cache.size",
        "Schemas kept in memory.",
        "1000",
        "INT",
        unit="schemas",
        check=at_least(1),
    ),
    _key(
        "use.latest.version",
        "Give records in the newest schema of subject `<topic>-key` or `<topic>-value`, not in "
        "the one they were written with.",
        "false",
        "BOOLEAN",
    ),
    _key(
        "latest.cache.ttl.sec",
        "How long the newest schema is believed to be the newest; -1 is for ever.",
        "60",
        "INT",
        unit="s",
        check=at_least(-1),
    ),
    _unused("auto.register.schemas", "true", "BOOLEAN", "a sink registers no schemas"),
    _unused("normalize.schemas", "false", "BOOLEAN", "a sink registers no schemas"),
    _unused("use.schema.id", "-1", "INT", "records name their schema"),
    _unused("latest.compatibility.strict", "true", "BOOLEAN", "a sink registers no schemas"),
    _unused("id.compatibility.strict", "true", "BOOLEAN", "a sink registers no schemas"),
    _unused(
        "key.subject.name.strategy", None, "CLASS", "schemas are found by their id, not by subject"
    ),
    _unused(
        "value.subject.name.strategy",
        None,
        "CLASS",
        "schemas are found by their id, not by subject",
    ),
    _unused("connect.meta.data", "true", "BOOLEAN", "the same rows with either value"),
    _unused("schemas.cache.config", "1000", "INT", "`schemas.cache.size` bounds what is kept"),
)
AVRO_KEYS: Final[tuple[Key, ...]] = (
    CONVERTER_TYPE,
    *REGISTRY_KEYS,
    _key(
        "schema.file",
        "File with the schema of every record (a path on every worker), in place of a registry: "
        "records are bare Avro data.",
    ),
    _key(
        "enhanced.avro.schema.support",
        "Name the types of a union by their full names.",
        "false",
        "BOOLEAN",
    ),
    _unused("scrub.invalid.names", "false", "BOOLEAN", "it changes what is written only"),
    COMPRESSION,
)
JSON_SCHEMA_KEYS: Final[tuple[Key, ...]] = (
    CONVERTER_TYPE,
    *REGISTRY_KEYS,
    _key(
        "schema.file",
        "File with the JSON Schema of every record (a path on every worker), in place of a "
        "registry: records are bare JSON.",
    ),
    _key(
        "use.optional.for.nonrequired",
        "A property that is not `required` may be missing or null; else only one that allows "
        "`null` may.",
        "false",
        "BOOLEAN",
    ),
    _unused("decimal.format", "BASE64", "STRING", "reading takes both forms"),
    _unused("json.fail.invalid.schema", "true", "BOOLEAN", "values are held to their types only"),
    COMPRESSION,
)
PROTOBUF_KEYS: Final[tuple[Key, ...]] = (
    CONVERTER_TYPE,
    *REGISTRY_KEYS,
    _key(
        "enhanced.protobuf.schema.support",
        "Name structs and enums by their full names.",
        "false",
        "BOOLEAN",
    ),
    _key(
        "generate.index.for.unions",
        "Put an index behind the name of a oneof: `choice_0`.",
        "true",
        "BOOLEAN",
    ),
    _key(
        "flatten.unions",
        "Give the members of a oneof as fields of the message, not as a struct.",
        "false",
        "BOOLEAN",
    ),
    _key("int.for.enums", "Give the numbers of enums, not their names.", "false", "BOOLEAN"),
    _key(
        "wrapper.for.nullables",
        "Messages such as `google.protobuf.StringValue` are nullable values; plain ones are never "
        "null.",
        "false",
        "BOOLEAN",
    ),
    _key(
        "optional.for.nullables",
        "An `optional` field that is not set is null, not its default.",
        "false",
        "BOOLEAN",
    ),
    _unused("scrub.invalid.names", "false", "BOOLEAN", "it changes what is written only"),
    COMPRESSION,
)
