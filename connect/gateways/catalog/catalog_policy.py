"""Checks the hosts, files and credentials of a catalog's client before it is opened.

Source:
    libpq's connection parameters (PostgreSQL 17, 32.1.2); SQLAlchemy 2.0's URLs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from connect.errors import ConfigError
from connect.gateways.access_policy import AMBIENT_ALLOWED, AccessPolicy
from connect.gateways.catalog_properties import ClientConfig, folder_places
from connect.gateways.storage.object_store import require_own_keys
from connect.gateways.storage.store_file_io import S3_CA_BUNDLE

_LIBPQ_ALLOWED: Final = frozenset(
    {
        "application_name",
        "channel_binding",
        "client_encoding",
        "connect_timeout",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "options",
        "require_auth",
        "sslmode",
        "target_session_attrs",
        "tcp_user_timeout",
    }
)
_NO_FILE: Final = "/dev/null/none"
_OF_THE_NODE: Final = ("passfile", "sslcert", "sslkey")


def check_catalog(config: ClientConfig, policy: AccessPolicy, *, resolves: bool = True) -> None:
    """Check the hosts and files that a client would reach.

    Args:
        config: of the client.
        policy: what connectors may reach.
        resolves: resolve names of hosts.

    Raises:
        ConfigError: ``host_refused``, ``path_refused``, ``ambient_credentials``, ``catalog_uri``;
            names the property.
    """
    properties = config.properties
    if config.kind == "sql":
        _at("uri", partial(_check_database, _url(properties), policy, resolves=resolves))
        properties = {key: value for key, value in properties.items() if key != "uri"}
    policy.check_addresses(properties, resolves=resolves)
    if warehouse := properties.get("warehouse"):
        _check_warehouse(config, warehouse, policy, resolves=resolves)
    for key, location in folder_places(properties).items():
        _at(key, partial(policy.check_location, location, resolves=resolves))
    bundle = (properties.get("ssl") or {}).get("cabundle")
    for key, file in (("ssl.cabundle", bundle), (S3_CA_BUNDLE, properties.get(S3_CA_BUNDLE))):
        if file:
            _at(key, partial(policy.check_path, file))
    if not policy.has_ambient:
        _check_credentials(config)


def _at(key: str, check: Callable[[], None]) -> None:
    try:
        check()
    except ConfigError as error:
        raise error.at(property=key) from None


def database_uri(config: ClientConfig, policy: AccessPolicy) -> str:
    """The address of a SQL catalog, without what libpq would find on the node's machine."""
    url = _url(config.properties)
    if policy.has_ambient or not url.drivername.startswith("postgresql"):
        return str(config.properties["uri"])
    own = dict.fromkeys(_OF_THE_NODE, _NO_FILE)
    if url.password is None:
        own["password"] = ""
    return url.update_query_dict(own).render_as_string(hide_password=False)


def _url(properties: dict[str, Any]) -> URL:
    try:
        return make_url(str(properties["uri"]))
    except (ArgumentError, ValueError):
        why = "iceberg.catalog.uri is no database's address"
        raise ConfigError(why, code="catalog_uri") from None


def _check_database(url: URL, policy: AccessPolicy, *, resolves: bool) -> None:
    if url.drivername.startswith("sqlite"):
        _check_file(url, policy)
        return
    if not policy.is_guarded:
        return
    for name in url.query:
        if name not in _LIBPQ_ALLOWED:
            raise ConfigError(
                f"option {name!r} of iceberg.catalog.uri is not allowed: only "
                f"{', '.join(sorted(_LIBPQ_ALLOWED))} are",
                code="catalog_uri",
            )
    if not url.host or "," in url.host or url.host.startswith("/"):
        raise ConfigError("iceberg.catalog.uri must name one host", code="catalog_uri")
    policy.check_host(url.host, resolves=resolves)


def _check_file(url: URL, policy: AccessPolicy) -> None:
    """A database in memory, or a file below an allowed root; SQLite's own addresses hide one."""
    if policy.is_guarded and url.query.keys() - {"timeout"}:
        raise ConfigError(
            "iceberg.catalog.uri of SQLite names a file and no options", code="catalog_uri"
        )
    if url.database and url.database != ":memory:" and not url.database.startswith("file:"):
        policy.check_path(url.database)


def _check_warehouse(
    config: ClientConfig, location: str, policy: AccessPolicy, *, resolves: bool
) -> None:
    """Where tables lie; a REST catalog's is a name that only the catalog knows."""
    if config.kind == "rest" and not location.lower().startswith(("file:", "/")):
        return
    _at("warehouse", partial(policy.check_location, location, resolves=resolves))


def _check_credentials(config: ClientConfig) -> None:
    properties = config.properties
    if config.kind in {"glue", "dynamodb"}:
        require_own_keys(properties, f"a catalog of type {config.kind}", config.kind)
    if str(properties.get("rest.sigv4-enabled", "")).lower() == "true":
        require_own_keys(properties, "rest.sigv4-enabled", "client")
    auth = properties.get("auth") or {}
    is_kerberos = str(properties.get("hive.kerberos-authentication", "")).lower() == "true"
    if config.kind == "bigquery" or auth.get("type") in {"google", "entra"} or is_kerberos:
        raise ConfigError(
            "this catalog would be asked with credentials of the node's machine; the node's "
            f"property {AMBIENT_ALLOWED} can allow it",
            code="ambient_credentials",
        )
