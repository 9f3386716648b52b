"""Translates the options of ``icefloe ingest`` to a connector and the properties of its node.

Rules of this file:
- Everything that ``ingest`` does is in the result: ``icefloe standalone`` does the same with it.
- Options keep the meaning that they have in kafka-delta-ingest. An option that cannot is refused,
  or named in the notes.
- Logins and TLS hold for every client of the node, also connection settings. All other settings
  are those of consumers, as in kafka-delta-ingest.
- The value of a key that may be a secret appears in no configuration: it is added to the
  environment of the process, and the configuration refers to it.
- The node's provider may read only those variables that the configuration refers to.

Source:
    kafka-delta-ingest (c6d42de) ``src/main.rs``, ``src/lib.rs``, ``src/transforms.rs``,
    ``src/serialization.rs``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from connect.config.keys.client_names import LIBRDKAFKA_ONLY
from connect.config.masking import may_be_secret
from connect.config.placeholders import has_placeholder, placeholders
from connect.errors import ConfigError
from connect.operations.ingest.ingest_options import (
    IngestJob,
    SourceOptions,
    TableOptions,
    ValueFormat,
)

GROUP: Final = "icefloe-ingest"
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_JSON_SCHEMA: Final = "io.confluent.connect.json.JsonSchemaConverter"
_AVRO: Final = "io.confluent.connect.avro.AvroConverter"
_VALUE: Final = "value.converter"
_ALIAS: Final = "ingest"
# the sources that kafka-delta-ingest knows; any other text is an expression over the value
_WELL_KNOWN: Final = {"kafka.timestamp": "epoch_millis_to_micro(kafka.timestamp)"}
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
_CATALOG: Final = "iceberg.catalog."
_S3_SECRETS: Final = {
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
}
_ADLS_SECRETS: Final = {
    "AZURE_STORAGE_ACCOUNT_KEY": "adls.account-key",
    "AZURE_STORAGE_SAS_TOKEN": "adls.sas-token",
}
_VARIABLE_PREFIX: Final = "ICEFLOE_INGEST_"
_PROVIDER: Final = "env"


def translate(source: SourceOptions, table: TableOptions, environ: Mapping[str, str]) -> IngestJob:
    """Return the connector and the node properties of a command line.

    Args:
        source: what is read.
        table: what is written.
        environ: environment variables, of which those of kafka-delta-ingest count.

    Raises:
        ConfigError: an option has a wrong form or cannot be supported.
    """
    notes: list[str] = []
    secrets: dict[str, str] = {}
    settings = {**environment_settings(environ), **source.settings}
    name, tables = _tables(table, environ)
    connector = {
        "name": source.app_id,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "1",
        "topics": source.topic,
        "key.converter": _BYTES,
        "header.converter": _BYTES,
        **_converter(source.value_format, environ),
        **_start(source, settings),
        **_transformation(table.transforms),
        **tables,
        "iceberg.tables.timestamp-unit": "us",
        "iceberg.tables.write-props.write.target-file-size-bytes": str(table.min_bytes_per_file),
        "iceberg.control.topic": f"control-{source.app_id}",
        "iceberg.control.commit.interval-ms": str(max(1, table.allowed_latency_s) * 1000),
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        **with_placeholders(table.settings, secrets),
    }
    kafka = with_placeholders(node_properties(settings, notes), secrets)
    node = {
        "bootstrap.servers": source.brokers,
        "group.id": GROUP,
        "icefloe.state.storage": "file",
        "icefloe.state.dir": f"icefloe-state/{re.sub(r'[^A-Za-z0-9._-]', '_', source.app_id)}",
        **_statsd(table.statsd_endpoint, environ),
        **kafka,
        **provider_properties(connector, kafka),
    }
    return IngestJob(connector, node, name, secrets, notes, source.daemon_group)


def parse_pair(text: str, delimiter: str) -> tuple[str, str]:
    """Split ``NAME: SOURCE`` or ``NAME=VALUE`` at the first delimiter, without spaces around.

    Raises:
        ConfigError: the delimiter is missing; the message has no value.
    """
    name, separator, value = text.partition(delimiter)
    if not separator or not name.strip():
        form = "PROPERTY: SOURCE" if delimiter == ":" else "PROPERTY_NAME=PROPERTY_VALUE"
        raise ConfigError(f"{name.strip()!r} does not have the form {form}")
    return name.strip(), value.strip()


def parse_seek_offsets(text: str) -> dict[int, int]:
    """Parse ``{"0":123, "1":321}``.

    Raises:
        ConfigError: the text has another form.
    """
    try:
        return {int(partition): int(offset) for partition, offset in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(
            'seek_offsets must be JSON with an offset for each partition: {"0":123}'
        ) from None


def with_start_offsets(
    connector: Mapping[str, str], next_offsets: Mapping[int, int]
) -> dict[str, str]:
    """Return the connector with first offsets of partitions in place of its own ones."""
    if not next_offsets:
        return dict(connector)
    key, topic = "icefloe.start.offsets", connector["topics"]
    before = json.loads(connector.get(key, "{}")).get(topic, {})
    after = {**before, **{str(partition): offset for partition, offset in next_offsets.items()}}
    return {**connector, key: json.dumps({topic: after}, sort_keys=True)}


def _start(source: SourceOptions, settings: Mapping[str, str]) -> dict[str, str]:
    keys = {
        # as in kafka-delta-ingest, -K replaces the option
        f"consumer.override.{RESET}": settings.get(RESET, source.auto_offset_reset)
    }
    if source.is_bounded:
        keys["icefloe.end"] = "latest"
    next_offsets = {partition: offset + 1 for partition, offset in source.seek_offsets.items()}
    return with_start_offsets({"topics": source.topic, **keys}, next_offsets) | keys


def _tables(table: TableOptions, environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the name of the table, and the keys of both tables."""
    dead_letters = table.dead_letter_location
    keys = {"iceberg.tables.auto-create-enabled": "true"}
    if table.is_iceberg:
        keys["iceberg.tables"] = table.location
        return table.location, keys | (
            {"errors.deadletterqueue.table": dead_letters} if dead_letters else {}
        )
    location = absolute_location(table.location)
    name = table_name("ingest", location)
    keys |= {
        "icefloe.format": "delta",
        "icefloe.delta.location": location,
        "iceberg.tables": name,
        f"iceberg.table.{name}.location": location,
    }
    locations = [location]
    if dead_letters:
        locations.append(absolute_location(dead_letters))
        other = table_name("dead_letters", locations[1])
        keys |= {
            "errors.deadletterqueue.table": other,
            f"iceberg.table.{other}.location": locations[1],
        }
    return name, keys | store_keys(locations, environ)


def _transformation(transforms: Sequence[str]) -> dict[str, str]:
    if not transforms:
        return {}
    prefix = f"transforms.{_ALIAS}."
    fields = dict(parse_pair(text, ":") for text in transforms)
    return {
        "transforms": _ALIAS,
        f"{prefix}type": "icefloe.transforms.Jmespath",
        f"{prefix}set-null": "false",
        **{
            f"{prefix}fields.{path}": _WELL_KNOWN.get(source, source)
            for path, source in fields.items()
        },
    }


def _converter(value: ValueFormat, environ: Mapping[str, str]) -> dict[str, str]:
    if value.json is not None and value.avro is not None:
        raise ConfigError("--json and --avro exclude each other")
    if value.avro is not None:
        if not value.avro:
            raise ConfigError(
                "--avro needs the URL of a schema registry or a file with the schema: values that "
                "are Avro container files are not supported",
            )
        return {_VALUE: _AVRO, **_schema(value.avro, environ)}
    if value.json is not None and value.json.startswith("http"):
        return {_VALUE: _JSON_SCHEMA, **_schema(value.json, environ)}
    compression = {f"{_VALUE}.payload.compression": "gzip"} if value.is_gzip else {}
    return {_VALUE: _JSON, f"{_VALUE}.schemas.enable": "false", **compression}


def _schema(source: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a schema registry, or of a file with a schema."""
    if not source.startswith("http"):
        file = Path(source).absolute()
        if not file.is_file():
            raise ConfigError(
                f"the schema file {source} does not exist: name a file, or the URL of a registry"
            )
        return {f"{_VALUE}.schema.file": str(file)}
    keys = {"schema.registry.url": source.rstrip("/")}
    if environ.get("SCHEMA_REGISTRY_USERNAME"):
        names = [f"SCHEMA_REGISTRY_{name}" for name in ("USERNAME", "PASSWORD")]
        login = ":".join(from_environment(name) if environ.get(name) else "" for name in names)
        keys |= {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": login}
    if proxy := environ.get("SCHEMA_REGISTRY_PROXY"):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        keys |= {"proxy.host": parts.hostname or "", "proxy.port": str(parts.port or 80)}
    return {f"{_VALUE}.{key}": text for key, text in keys.items()}


def _statsd(endpoint: str, environ: Mapping[str, str]) -> dict[str, str]:
    if not endpoint:
        return {}
    prefix = environ.get("KDI_METRICS_PREFIX", "kafka_delta_ingest")
    return {"icefloe.statsd.address": endpoint, "icefloe.statsd.prefix": prefix}


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


def absolute_location(location: str) -> str:
    """Return the location of a Delta table: an absolute path, or a URL of today's form.

    Raises:
        ConfigError: a URL has no container or no folder.
    """
    scheme, separator, _ = location.partition("://")
    if not separator:
        return str(Path(location).absolute())
    if scheme.lower() != "adls2":
        return location.rstrip("/")
    parts = urlsplit(location)
    container, _, folder = parts.path.strip("/").partition("/")
    if not parts.netloc or not container or not folder:
        raise ConfigError(
            f"{location} is not adls2://account/container/folder; "
            "or use abfss://container@account.dfs.core.windows.net/folder",
        )
    return f"abfss://{container}@{parts.netloc}.dfs.core.windows.net/{folder}"


def table_name(namespace: str, location: str) -> str:
    """Return the name of a table, for status and metrics: its folder's name in a namespace."""
    folder = location.rstrip("/").rpartition("/")[2]
    return f"{namespace}.{re.sub(r'[^A-Za-z0-9_]', '_', folder) or 'table'}"


def store_keys(locations: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of the object stores in which tables are."""
    schemes = {location.partition("://")[0].lower() for location in locations if "://" in location}
    keys: dict[str, str] = {}
    if schemes & {"s3", "s3a"}:
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            keys |= {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
        if region := environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"):
            keys["s3.region"] = region
        keys |= _secrets(_S3_SECRETS, environ)
    if "abfss" in schemes:
        if account := environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
            keys["adls.account-name"] = account
        keys |= _secrets(_ADLS_SECRETS, environ)
    return {_CATALOG + key: value for key, value in keys.items()}


def _secrets(names: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    return {key: from_environment(name) for name, key in names.items() if environ.get(name)}


def from_environment(name: str) -> str:
    """Return the placeholder of an environment variable."""
    return f"${{{_PROVIDER}:{name}}}"


def with_placeholders(properties: Mapping[str, str], secrets: dict[str, str]) -> dict[str, str]:
    """Replace values that may be secrets by placeholders.

    Args:
        properties: with the values.
        secrets: receives the variables of the placeholders.
    """
    shown: dict[str, str] = {}
    for key, value in properties.items():
        if value and may_be_secret(key) and not has_placeholder(value):
            name = _VARIABLE_PREFIX + re.sub(r"[^A-Z0-9]+", "_", key.upper())
            secrets[name] = value
            shown[key] = from_environment(name)
        else:
            shown[key] = value
    return shown


def provider_properties(*configurations: Mapping[str, str]) -> dict[str, str]:
    """Return the node properties that resolve the placeholders of these configurations."""
    names = {
        placeholder.key
        for configuration in configurations
        for value in configuration.values()
        for placeholder in placeholders(value)
        if placeholder.provider == _PROVIDER
    }
    if not names:
        return {}
    return {
        "config.providers": _PROVIDER,
        f"config.providers.{_PROVIDER}.class": "EnvVarConfigProvider",
        f"config.providers.{_PROVIDER}.param.allowlist.pattern": "|".join(sorted(names)),
    }
