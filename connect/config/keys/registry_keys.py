"""Keys of converters with a schema registry or schema file, with the prefix ``value.converter.``.

Names and defaults are those of Confluent. Keys of Confluent's serializers have no effect.
"""

from __future__ import annotations

from typing import Any, Final

from connect.config.key import REQUIRED, Importance, Key, KeyType, at_least, between, one_of

CONVERTER_TYPE: Final = Key(
    "converter.type",
    "STRING",
    "Whether the converter is for keys, values or headers.",
    REQUIRED,
    "LOW",
    check=one_of(("key", "value", "header")),
)


def _choice(*choices: str) -> Any:
    check = one_of(choices)
    return lambda value: None if value is None else check(value.strip().upper())


COMPRESSION: Final = Key(
    "payload.compression",
    "STRING",
    "Compression of payloads by the producing application: `none` or `gzip`. Compression by "
    "Kafka does not require this key.",
    "none",
    "LOW",
    check=lambda value: one_of(("none", "gzip"))((value or "none").strip().lower()),
)

_TLS: Final = (
    ("truststore.location", "STRING", "PEM file of the certificates to trust."),
    ("truststore.type", "STRING", "`PEM`; other types are not supported."),
    ("truststore.certificates", "PASSWORD", "Certificates to trust, as PEM text."),
    ("keystore.location", "STRING", "PEM file of the client's key and certificate chain."),
    ("keystore.type", "STRING", "`PEM`; other types are not supported."),
    ("key.password", "PASSWORD", "Password of the client's key."),
    (
        "endpoint.identification.algorithm",
        "STRING",
        "`https` verifies the host name in the server's certificate; empty disables verification.",
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
    return Key(name, kind, "Key of Confluent's converters.", default, "LOW", java_only=why)


REGISTRY_KEYS: Final[tuple[Key, ...]] = (
    _key(
        "schema.registry.url",
        "Comma-separated addresses of the registry, in order of preference. Required unless "
        "`schema.file` is set.",
        importance="HIGH",
    ),
    _key(
        "basic.auth.credentials.source",
        "Source of user and password: `URL` or `USER_INFO`.",
        "URL",
        check=_choice("URL", "USER_INFO", "SASL_INHERIT"),
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
        "Source of bearer tokens: `STATIC_TOKEN` or `OAUTHBEARER`.",
        check=_choice("STATIC_TOKEN", "OAUTHBEARER"),
    ),
    _key("bearer.auth.token", "Static bearer token.", kind="PASSWORD", is_secret=True),
    _key("bearer.auth.issuer.endpoint.url", "Token endpoint for OAuth client credentials."),
    _key("bearer.auth.client.id", "Client id for the token endpoint."),
    _key("bearer.auth.client.secret", "Its secret.", kind="PASSWORD", is_secret=True),
    _key("bearer.auth.scope", "Requested scope."),
    _key("bearer.auth.logical.cluster", "Value of the request header `target-sr-cluster`."),
    _key(
        "bearer.auth.identity.pool.id", "Value of the request header `Confluent-Identity-Pool-Id`."
    ),
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
        "Timeout of connection attempts.",
        "10000",
        "INT",
        unit="ms",
        check=at_least(1),
    ),
    _key(
        "http.read.timeout.ms",
        "Timeout of requests.",
        "60000",
        "INT",
        unit="ms",
        check=at_least(1),
    ),
    _key(
        "max.retries",
        "Retries of a request before the task handles it as an outage.",
        "3",
        "INT",
        check=between(0, 100),
    ),
    _key(
        "retries.wait.ms",
        "Backoff before the first retry; it doubles with each retry.",
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
        "Maximum number of cached schemas.",
        "1000",
        "INT",
        unit="schemas",
        check=at_least(1),
    ),
    _key(
        "use.latest.version",
        "Convert records to the latest schema of the subject `<topic>-key` or `<topic>-value` "
        "instead of the writer schema.",
        "false",
        "BOOLEAN",
    ),
    _key(
        "latest.cache.ttl.sec",
        "Time for which the latest schema is cached; -1 has no limit.",
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
    _unused("connect.meta.data", "true", "BOOLEAN", "it does not change the rows"),
    _unused("schemas.cache.config", "1000", "INT", "`schemas.cache.size` limits the cache"),
)
AVRO_KEYS: Final[tuple[Key, ...]] = (
    CONVERTER_TYPE,
    *REGISTRY_KEYS,
    _key(
        "schema.file",
        "File with the schema of all records, instead of a registry. The path must exist on every "
        "worker. Records are bare Avro data.",
    ),
    _key(
        "enhanced.avro.schema.support",
        "Use full names for the types of a union.",
        "false",
        "BOOLEAN",
    ),
    _unused("scrub.invalid.names", "false", "BOOLEAN", "it only affects serialization"),
    COMPRESSION,
)
JSON_SCHEMA_KEYS: Final[tuple[Key, ...]] = (
    CONVERTER_TYPE,
    *REGISTRY_KEYS,
    _key(
        "schema.file",
        "File with the JSON Schema of all records, instead of a registry. The path must exist on "
        "every worker. Records are bare JSON.",
    ),
    _key(
        "use.optional.for.nonrequired",
        "Allow properties that are not `required` to be missing or null. Otherwise, only "
        "properties with the type `null` may be.",
        "false",
        "BOOLEAN",
    ),
    _unused("decimal.format", "BASE64", "STRING", "both formats can be read"),
    _unused(
        "json.fail.invalid.schema", "true", "BOOLEAN", "values are checked against their types only"
    ),
    COMPRESSION,
)
PROTOBUF_KEYS: Final[tuple[Key, ...]] = (
    CONVERTER_TYPE,
    *REGISTRY_KEYS,
    _key(
        "enhanced.protobuf.schema.support",
        "Use full names for structs and enums.",
        "false",
        "BOOLEAN",
    ),
    _key(
        "generate.index.for.unions",
        "Append an index to the name of a oneof: `choice_0`.",
        "true",
        "BOOLEAN",
    ),
    _key(
        "flatten.unions",
        "Convert the members of a oneof to fields of the message instead of a struct.",
        "false",
        "BOOLEAN",
    ),
    _key("int.for.enums", "Convert enums to numbers instead of names.", "false", "BOOLEAN"),
    _key(
        "wrapper.for.nullables",
        "Convert messages such as `google.protobuf.StringValue` to nullable values. Plain values "
        "are never null.",
        "false",
        "BOOLEAN",
    ),
    _key(
        "optional.for.nullables",
        "Convert unset `optional` fields to null instead of their default.",
        "false",
        "BOOLEAN",
    ),
    _unused("scrub.invalid.names", "false", "BOOLEAN", "it only affects serialization"),
    COMPRESSION,
)
