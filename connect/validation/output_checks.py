"""Checks of the keys of outputs, ``icefloe.output.<name>.*``, and their typed form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from connect.config.key import Key, Raw, invalid, list_of, missing, typed
from connect.config.keys.iceberg_keys import topic_name
from connect.config.keys.output_keys import OUTPUT_KEYS, OUTPUT_NAME, output_key
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS, OutputConfig, WebhookConfig
from connect.config.placeholders import has_placeholder
from connect.errors import ConfigError
from connect.gateways.webhook import webhook_host
from connect.records.transforms.jmespath_transform import compiled

OUTPUTS_MAX: Final = 20
_TOPIC: Final = "topic"
_WHERE: Final = "where"
_URL: Final = "webhook.url"
_KEYS: Final[Mapping[str, Key]] = {key.name: key for key in OUTPUT_KEYS}


def output_errors(raw: Raw, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield key and message for each error of a single key.

    Args:
        raw: the configuration.
        names: of ``icefloe.outputs``.
    """
    if len(names) > OUTPUTS_MAX:
        yield OUTPUTS, invalid(OUTPUTS, len(names), f"at most {OUTPUTS_MAX} outputs are supported")
        return
    if len(set(names)) < len(names):
        yield OUTPUTS, invalid(OUTPUTS, ",".join(names), "an output is named twice")
    for name in names:
        if OUTPUT_NAME.fullmatch(name) is None:
            why = "a name has 1 to 64 letters, digits, underscores and dashes"
            yield OUTPUTS, invalid(OUTPUTS, name, why)
            continue
        yield from _target_errors(raw, f"{OUTPUT_PREFIX}{name}.")
    for key, text in raw.items():
        parsed = output_key(key)
        if parsed is None:
            continue
        if parsed.name not in names:
            yield key, f"{key} belongs to no output; add {parsed.name} to {OUTPUTS}"
        elif (error := _error(key, parsed.setting, text)) is not None:
            yield key, error


def _target_errors(raw: Raw, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield an error unless an output has either a topic or a webhook."""
    topic, url = f"{prefix}{_TOPIC}", f"{prefix}{_URL}"
    if raw.get(topic) and raw.get(url):
        yield url, f"{topic} and {url} are both set: use an output for each of them"
    elif not raw.get(topic) and not raw.get(url):
        yield topic, f"{missing(topic)} Set it, or {url}."


def _error(key: str, setting: str, text: str | None) -> str | None:
    """Return the error of one value, or None."""
    is_secret = _KEYS[setting].is_secret
    # the resolved name of a topic would bypass the grants
    if has_placeholder(text or "") and not is_secret:
        return invalid(key, text, "it cannot contain a placeholder")
    checked = typed(_KEYS[setting], text, name=key)
    if checked.errors:
        return checked.errors[0]
    if setting == _URL and not has_placeholder(text or "") and webhook_host(checked.value) is None:
        return invalid(key, "[hidden]", "it must be http(s)://host[:port]/path, without a login")
    if setting == _TOPIC and checked.value and (why := topic_name(checked.value)) is not None:
        return invalid(key, text, why)
    if setting == "topic.replication.factor" and checked.value != -1 and checked.value < 1:
        return invalid(key, text, "Value must be at least 1, or -1")
    if setting == _WHERE and checked.value:
        try:
            compiled(key, checked.value)
        except ConfigError as error:
            return error.message
    if setting in ("columns", "tables") and "" in checked.value:
        return invalid(key, text, "a name is empty")
    if setting == "key" and checked.value and not all(checked.value.split(".")):
        return invalid(key, text, "a name of the path is empty")
    return None


def outputs_of(raw: Mapping[str, str], namespace: str | None) -> tuple[OutputConfig, ...]:
    """Return the outputs of a configuration without errors.

    Args:
        raw: the configuration.
        namespace: ``iceberg.tables.default-namespace``.
    """
    return tuple(_output(raw, name, namespace) for name in list_of(raw.get(OUTPUTS, "").strip()))


def _output(raw: Mapping[str, str], name: str, namespace: str | None) -> OutputConfig:
    def value(setting: str) -> str:
        default = _KEYS[setting].default_text or ""
        return raw.get(f"{OUTPUT_PREFIX}{name}.{setting}", default).strip()

    tables = list_of(value("tables"))
    webhook = None
    if value(_URL):
        webhook = WebhookConfig(
            value(_URL),
            value("webhook.authorization") or None,
            int(value("webhook.batch.rows")),
            int(value("webhook.retry.ms")),
        )
    return OutputConfig(
        name=name,
        topic=value(_TOPIC) or None,
        where=value(_WHERE) or None,
        key=tuple(value("key").split(".")) if value("key") else (),
        columns=tuple(list_of(value("columns"))),
        tables=tuple(
            f"{namespace}.{table}" if namespace and "." not in table else table for table in tables
        ),
        partitions=int(value("topic.partitions")),
        replication_factor=int(value("topic.replication.factor")),
        webhook=webhook,
    )
