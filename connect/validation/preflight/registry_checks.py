"""Checks of a configuration against the schema registries of its converters.

Rules of this file:
- The check requests a schema id that does not exist. The answer that it is missing proves that the
  registry is available and accepts the credentials. The schemas of future records are not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from connect.config.connector import ConnectorConfig
from connect.config.keys.topic_keys import CONVERTER_SETTINGS, TopicKey
from connect.gateways.schema_registry.registry_client import SchemaNotFound, SchemaRegistry
from connect.gateways.schema_registry.registry_options import number, without_credentials
from connect.validation.preflight.live_checks import Check, Found

URL: Final = "schema.registry.url"
NO_SCHEMA: Final = 2**31 - 1
_LIMITS: Final = {"http.connect.timeout.ms": 10_000, "http.read.timeout.ms": 60_000}


def registry_checks(config: ConnectorConfig, *, each_s: float) -> Iterator[Check]:
    """Yield one check per registry. Converters with equal options share a check.

    Args:
        config: the configuration with resolved placeholders; ``raw`` is as sent.
        each_s: timeout of a request in seconds.
    """
    checked: list[Mapping[str, str]] = []
    sides = {
        "value.converter": config.value_converter,
        "key.converter": config.key_converter,
        "header.converter": config.header_converter,
    }
    for own in config.topic_converters:
        for setting, each in zip(CONVERTER_SETTINGS, (own.key, own.value), strict=True):
            if each is not None:
                sides[TopicKey(own.name, setting).whole] = each
    for side, converter in sides.items():
        options = converter.options
        if URL not in options or options in checked:
            continue
        checked.append(options)
        key = f"{side}.{URL}"
        address = config.raw.get(key)  # as sent, not as resolved
        where = "of the node's properties" if address is None else f"at {_displayed(address)}"
        question = f"Asked the schema registry {where} (each request within {each_s:g} s)"
        yield Check(key, question, partial(_ask, options, each_s))


def _displayed(urls: str) -> str:
    return ", ".join(without_credentials(url.strip()) for url in urls.split(","))


def _ask(options: Mapping[str, str], each_s: float) -> Found:
    each_ms = int(each_s * 1000)
    limits = {
        key: str(min(each_ms, number(options, key, longest, 1, 3_600_000)))
        for key, longest in _LIMITS.items()
    }
    registry = SchemaRegistry({**options, **limits, "max.retries": "0"})
    try:
        with suppress(SchemaNotFound):
            registry.by_id(NO_SCHEMA)
    finally:
        registry.close()
    return ()
