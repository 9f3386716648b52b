"""Check of the addresses and files in a connector's configuration.

Rules of this file:
- The check does not resolve host names or open files. Host names are checked when they are
  resolved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from connect.config.client_overrides import split
from connect.config.keys.output_keys import output_key
from connect.config.keys.topic_keys import topic_key
from connect.config.placeholders import has_placeholder
from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy
from connect.gateways.catalog.catalog_policy import check_catalog
from connect.gateways.catalog_properties import client_config, connector_key
from connect.gateways.webhook import webhook_host
from connect.records.converters.registry.registered_schemas import SCHEMA_FILE
from connect.validation.catalog_view import catalog_properties, state_properties
from connect.validation.key_checks import creation_setting

_CATALOG: Final = "iceberg.catalog."
_CONVERTERS: Final = ("key.converter.", "value.converter.", "header.converter.")
_TABLE_PROPERTIES: Final = ("iceberg.tables.write-props.", "iceberg.tables.auto-create-props.")
_BUNDLES: Final = ("ssl.cabundle", "s3.ssl.cabundle")


def unreachable(raw: Mapping[str, str | None], policy: AccessPolicy) -> Iterator[tuple[str, str]]:
    """Yield key and error message for each address or file that is not allowed.

    Args:
        raw: the configuration with resolved placeholders.
        policy: the allowed hosts and folders.
    """
    hosts = dataclasses.replace(policy, roots=None)  # ``location_policy`` checks paths of tables
    clients = (catalog_properties(raw), state_properties(raw))
    # the options of the store may be those of both
    yield from dict.fromkeys(e for each in clients for e in _catalog(each, hosts, policy))
    own = {f"{key.whole}." for name in raw if (key := topic_key(name)) and key.option}
    for prefix in (*_CONVERTERS, *sorted(own)):
        options = split(raw, prefix)
        for name, value in options.items():
            try:
                if name.endswith(".location") or name == SCHEMA_FILE:
                    policy.check_path(value)
                elif name == "proxy.host":
                    policy.check_host(value, resolves=False)
                else:
                    policy.check_addresses({name: value}, resolves=False)
            except ConfigError as error:
                yield prefix + name, error.message
    yield from _webhooks(raw, policy)
    for name, place in raw.items():
        is_place = name.startswith(_TABLE_PROPERTIES) and name.endswith(".path")
        if place and (is_place or creation_setting(name) == "location"):
            try:
                hosts.check_location(place.strip(), resolves=False)
            except ConfigError as error:
                yield name, error.message


def _webhooks(raw: Mapping[str, str | None], policy: AccessPolicy) -> Iterator[tuple[str, str]]:
    for name, url in raw.items():
        is_webhook = (output := output_key(name)) is not None and output.setting == "webhook.url"
        host = webhook_host(url or "") if is_webhook else None
        if host is not None:
            try:
                policy.check_host(host, resolves=False)
            except ConfigError as error:
                yield name, error.message


def _catalog(
    properties: Mapping[str, str], hosts: AccessPolicy, policy: AccessPolicy
) -> Iterator[tuple[str, str]]:
    for key in _BUNDLES:
        try:
            if bundle := properties.get(key):
                policy.check_path(bundle)
        except ConfigError as error:
            yield _CATALOG + key, error.message
    if has_placeholder(properties.get("uri", "")):
        return  # of an unknown provider: checked when it is opened
    try:
        config = client_config(properties)
    except ConfigError as error:
        if error.code == "catalog_uri":
            yield f"{_CATALOG}uri", error.message
        return  # other errors are reported when it is opened
    try:
        check_catalog(config, hosts, resolves=False)
    except ConfigError as error:
        name = str(error.coordinates.get("property", "uri"))
        yield connector_key(name if name in properties else "uri"), error.message
