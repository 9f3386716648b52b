"""Translates the Java sink's ``iceberg.catalog.*`` keys (prefix removed) for PyIceberg.

Rules of this file:
- Functions only convert properties; they open no client.
- A property that names a Python module is always refused: its import would run the code of a
  table owner or of the catalog's operator.
- Keys that name Java classes are dropped, because PyIceberg has built-in equivalents. Unknown
  keys are passed on unchanged, as the Java client does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import quote, urlsplit

from connect.config.location_policy import LocationPolicy
from connect.config.table_formats import (
    AGGREGATE,
    DELTA,
    FOLDER_FORMATS,
    FORMAT_NAMES,
    PARQUET,
)
from connect.errors import ConfigError

CatalogKind: TypeAlias = Literal[
    "rest", "sql", "hive", "glue", "dynamodb", "bigquery", "delta", "parquet", "aggregate"
]
KINDS: tuple[str, ...] = tuple(k for k in get_args(CatalogKind) if k not in FOLDER_FORMATS)
FOLDER_ROOTS: Mapping[str, str] = {
    DELTA: "delta.root",
    PARQUET: "parquet.root",
    AGGREGATE: "aggregate.root",
}
"""By format without a catalog, the property with the location of its tables."""
FOLDER_OF_TABLE = "folder.of."
"""Prefix of properties that set the location of one such table."""

CONNECT_TIMEOUT_MS = 10_000
READ_TIMEOUT_MS = 60_000

PYTHON_MODULE_PROPERTIES = (
    "py-io-impl",
    "py-catalog-impl",
    "write.py-location-provider.impl",
    "auth",
    "auth.impl",
    "auth.type",
    "s3.retry-strategy-impl",
)

_KIND_BY_CLASS: dict[str, CatalogKind] = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.jdbc.JdbcCatalog": "sql",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
    "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog": "dynamodb",
    "org.apache.iceberg.gcp.bigquery.BigQueryMetastoreCatalog": "bigquery",
}
_FOLDER_KINDS: tuple[CatalogKind, ...] = ("delta", "parquet", "aggregate")  # of icefloe.format
_FOLDER_SCHEMES: Mapping[str, tuple[frozenset[str], str]] = {
    DELTA: (frozenset({"file", "s3", "s3a", "abfs", "abfss"}), "s3://, s3a:// and abfss://"),
    PARQUET: (frozenset({"file", "s3", "s3a"}), "s3:// and s3a://"),
    AGGREGATE: (
        frozenset({"file", "s3", "s3a", "abfs", "abfss", "gs"}),
        "s3://, s3a://, abfss:// and gs://",
    ),
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_NO_PATH = re.compile(r"[%?#\\\x00-\x1f\x7f]|^\s|\s$")
_REFUSED_KINDS = {
    "hadoop": "a Hadoop catalog has no atomic commit on object stores",
    "org.apache.iceberg.hadoop.HadoopCatalog": "a Hadoop catalog has no atomic commit on "
    "object stores",
    "nessie": "use Nessie's Iceberg REST endpoint: type rest",
    "org.apache.iceberg.nessie.NessieCatalog": "use Nessie's Iceberg REST endpoint: type rest",
}
_JAVA_ONLY = frozenset(
    {
        "type",
        "catalog-impl",
        "io-impl",
        "metrics-reporter-impl",
        "cache-enabled",
        "cache.expiration-interval-ms",
        "client.factory",
        "client.credentials-provider",
        "s3.client-factory-impl",
        "s3.path-style-access",
        "http-client.type",
        "lock-impl",
        "hadoop-conf-dir",
        "jdbc.user",
        "jdbc.password",
        "jdbc.schema-version",
        "s3.sse.key",
        "s3.sse.type",
        "snapshot-loading-mode",  # floors are read from the complete snapshot ancestry
        "rest.auth.type",
        "rest.auth.basic.username",
        "rest.auth.basic.password",
        "rest.client.connection-timeout-ms",
        "rest.client.socket-timeout-ms",
    }
)
_ITS_OWN_CLIENTS = "PyIceberg uses its own object store clients"
_NO_ENCRYPTION = "PyArrow's client has no such option; set the default encryption of the bucket"
WITHOUT_EFFECT: Mapping[str, str] = {
    "io-impl": _ITS_OWN_CLIENTS,
    "client.factory": _ITS_OWN_CLIENTS,
    "client.credentials-provider": _ITS_OWN_CLIENTS,
    "s3.client-factory-impl": _ITS_OWN_CLIENTS,
    "http-client.type": _ITS_OWN_CLIENTS,
    "s3.sse.type": _NO_ENCRYPTION,
    "s3.sse.key": _NO_ENCRYPTION,
    "metrics-reporter-impl": "the node's own metrics count commits",
    "cache-enabled": "the catalog client does not cache tables",
    "cache.expiration-interval-ms": "the catalog client does not cache tables",
    "lock-impl": "commits use the catalog's own atomic operations",
    "hadoop-conf-dir": "no Hadoop client is used",
    "jdbc.schema-version": "PyIceberg supports one schema of the catalog's tables",
    "snapshot-loading-mode": "all snapshots are always loaded",
}
"""Keys that only the Java client uses, and why they have no effect."""
_RENAMED = {
    "rest.access-key-id": ("client.access-key-id",),
    "rest.secret-access-key": ("client.secret-access-key",),
    "rest.session-token": ("client.session-token",),
    "client.region": ("client.region", "s3.region", "glue.region", "dynamodb.region"),
    "client.assume-role.arn": ("client.role-arn",),
    "client.assume-role.session-name": ("client.role-session-name",),
    "adls.auth.shared-key.account.name": ("adls.account-name",),
    "adls.auth.shared-key.account.key": ("adls.account-key",),
    "gcs.oauth2.token-expires-at": ("gcs.oauth2.token-expires-at",),
}
_MILLISECONDS = {
    "s3.connection-timeout-ms": "s3.connect-timeout",
    "s3.socket-timeout-ms": "s3.request-timeout",
    "http-client.apache.connection-timeout-ms": "s3.connect-timeout",
    "http-client.apache.socket-timeout-ms": "s3.request-timeout",
    "http-client.urlconnection.connection-timeout-ms": "s3.connect-timeout",
    "http-client.urlconnection.socket-timeout-ms": "s3.request-timeout",
}
_SQLITE_URI = "file:"
_NO_BASE = re.compile(r"[?#\s\\\x00-\x1f]")
_AMAZON = re.compile(r"(.*\.)?amazonaws\.com(\.cn)?")
_NO_CLIENT: Mapping[str, str] = {
    "adls.connection-string": "adls.account-name with adls.account-key",
    "adls.token": "adls.sas-token, or adls.tenant-id, adls.client-id and adls.client-secret",
    "adls.credential": "adls.sas-token, or adls.tenant-id, adls.client-id and adls.client-secret",
    "adls.account-host": "adls.blob-storage-authority and adls.dfs-storage-authority",
}
"""Keys of clients that are not used, which would otherwise be ignored, and what to use instead."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The configuration of a PyIceberg catalog client.

    Attributes:
        kind: of the catalog.
        properties: PyIceberg's properties; values are text except ``auth`` and ``ssl``.
        connect_timeout_ms: for a connection to a REST catalog.
        read_timeout_ms: between two reads of its response.
    """

    kind: CatalogKind
    properties: dict[str, Any]
    connect_timeout_ms: int
    read_timeout_ms: int


def python_modules_in(properties: Mapping[str, Any]) -> list[str]:
    """Return the names of properties for which PyIceberg would import a Python module."""
    return sorted(key for key in PYTHON_MODULE_PROPERTIES if properties.get(key))


def client_config(properties: Mapping[str, str]) -> ClientConfig:
    """Translate a connector's catalog properties.

    Args:
        properties: ``iceberg.catalog.*`` without the prefix, placeholders resolved.

    Returns:
        The client's kind, properties and timeouts.

    Raises:
        ConfigError: the type is unknown or unsafe, a property names a Python module, or a value
            is invalid.

    Source:
        Iceberg 1.12.0 ``CatalogProperties``, ``S3FileIOProperties``, ``AwsProperties``,
        ``JdbcCatalog``; PyIceberg 0.12.0 ``pyiceberg.io`` and ``pyiceberg.catalog.rest``.
    """
    if named := python_modules_in(properties):
        raise ConfigError(
            f"iceberg.catalog.{named[0]} would import a Python module, which is not allowed; "
            "remove the property",
            code="python_module_refused",
        )
    for key, instead in _NO_CLIENT.items():
        if properties.get(key):
            raise ConfigError(
                f"iceberg.catalog.{key} is not supported: use {instead}", code="catalog_property"
            )
    kind = catalog_kind(properties)
    out = _renamed(properties)
    connect_ms = _int_of(properties, "rest.client.connection-timeout-ms", CONNECT_TIMEOUT_MS)
    read_ms = _int_of(properties, "rest.client.socket-timeout-ms", READ_TIMEOUT_MS)
    if kind == "rest":
        _complete_rest(properties, out)
    elif kind == "sql":
        out["uri"] = _database_uri(properties, connect_ms, read_ms)
        out["warehouse"] = _warehouse(_required(properties, "warehouse"))
        out.setdefault("pool_pre_ping", "true")
    elif kind in FOLDER_FORMATS:
        if not properties.get(FOLDER_ROOTS[kind]):
            key = FOLDER_FORMATS[kind]
            raise ConfigError(
                f"set {key}: {FORMAT_NAMES[kind]} need a location",
                code="catalog_property",
                key=key,
            )
        for key in folder_places(out):
            out[key] = _warehouse(properties[key])
    elif kind == "glue":
        # botocore would retry requests; a commit must be sent only once. It takes no text.
        out["glue.max-retries"] = _int_of(properties, "glue.max-retries", 0)
    return ClientConfig(kind, out, connect_ms, read_ms)


def refuse_places(properties: Mapping[str, Any], locations: LocationPolicy) -> None:
    """Refuse a catalog if the operator does not allow its warehouse or SQLite file.

    Args:
        properties: of a client that writes metadata files, as ``client_config`` returns them.
        locations: the locations that the operator allows.

    Raises:
        ConfigError: ``location_not_granted``.
    """
    for key, location in (
        ("warehouse", properties.get("warehouse")),
        ("uri", sqlite_file(str(properties.get("uri", "")))),
        *folder_places(properties).items(),
    ):
        if location is None:
            continue
        if key == "uri" and location.startswith(_SQLITE_URI) and locations.local is not None:
            raise ConfigError(
                "iceberg.catalog.uri names an SQLite file as a URI (file:): give the path alone",
                code="location_not_granted",
                key="iceberg.catalog.uri",
            )
        if (why := locations.refusal(location)) is not None:
            named = connector_key(key)
            raise ConfigError(
                f"the location in {named} {why}", code="location_not_granted", key=named
            )


def folder_places(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that are locations of tables without a catalog."""
    return {
        key: str(value)
        for key, value in properties.items()
        if key in FOLDER_ROOTS.values() or key.startswith(FOLDER_OF_TABLE)
    }


def folder_place_error(table_format: str, location: str) -> str | None:
    """Return why tables of a format cannot be at a location, or None."""
    match = _SCHEME.match(location)
    scheme = match[1].lower() if match else "file"
    schemes, places = _FOLDER_SCHEMES[table_format]
    if scheme not in schemes or not (scheme == "file" or "://" in location):
        return f"{FORMAT_NAMES[table_format]} can be in a local folder, or at {places}"
    if _NO_PATH.search(location) or not {".", ".."}.isdisjoint(location.split("/")):
        return (
            "some clients read it as a URL: leave out %, ?, #, \\, control characters, and the "
            "folders . and .."
        )
    return None


def connector_key(name: str) -> str:
    """Return the key of the connector's configuration that a client's property comes from."""
    for table_format, root in FOLDER_ROOTS.items():
        if name == root:
            return FOLDER_FORMATS[table_format]
    if name.startswith(FOLDER_OF_TABLE):
        return f"iceberg.table.{name.removeprefix(FOLDER_OF_TABLE)}.location"
    return f"iceberg.catalog.{name}"


def sqlite_file(uri: str) -> str | None:
    """Return the file of an SQLite database; None for other databases and in-memory ones.

    Args:
        uri: in SQLAlchemy's form, as ``client_config`` returns it.
    """
    if not uri.startswith("sqlite://"):
        return None
    _, _, name = uri.removeprefix("sqlite://").partition("?")[0].partition("/")
    if name in {"", ":memory:"}:
        return None
    return name if name.startswith(_SQLITE_URI) else str(Path(name).absolute())


def _renamed(properties: Mapping[str, str]) -> dict[str, Any]:
    """Convert keys that have another name, unit or polarity in PyIceberg; keep all others."""
    out: dict[str, Any] = {}
    for key, value in properties.items():
        if key in _JAVA_ONLY or key.startswith("ssl."):
            continue
        if key in _MILLISECONDS:
            out.setdefault(_MILLISECONDS[key], str(_int(key, value) / 1000))
        else:
            for name in _RENAMED.get(key, (key,)):
                out.setdefault(name, value)
    if "s3.path-style-access" in properties:
        is_path_style = properties["s3.path-style-access"].lower() == "true"
        out.setdefault("s3.force-virtual-addressing", str(not is_path_style).lower())
    bundle, endpoint = properties.get("ssl.cabundle"), properties.get("s3.endpoint", "")
    is_private = endpoint.startswith("https://") and not _AMAZON.fullmatch(
        urlsplit(endpoint).hostname or ""
    )
    if bundle and is_private:
        out.setdefault("s3.ssl.cabundle", bundle)
    out.setdefault("s3.connect-timeout", str(CONNECT_TIMEOUT_MS / 1000))
    out.setdefault("s3.request-timeout", str(READ_TIMEOUT_MS / 1000))
    return out


def catalog_kind(properties: Mapping[str, str]) -> CatalogKind:
    """Return the kind of client that the properties select.

    Raises:
        ConfigError: the type is unknown, or unsafe; the message has the reason.
    """
    named = properties.get("catalog-impl") or properties.get("type") or ""
    if named in _REFUSED_KINDS:
        raise ConfigError(
            f"iceberg.catalog type {named!r} cannot be used: {_REFUSED_KINDS[named]}",
            code="catalog_type",
        )
    if named in _KIND_BY_CLASS:
        return _KIND_BY_CLASS[named]
    kind = "sql" if named.lower() == "jdbc" else named.lower()
    for known_kind in (*_KIND_BY_CLASS.values(), *_FOLDER_KINDS):
        if kind == known_kind:
            return known_kind
    if not named and properties.get("uri", "").startswith("http"):
        return "rest"
    raise ConfigError(
        f"iceberg.catalog.type {named!r} is unknown; one of {', '.join(KINDS)}, jdbc",
        code="catalog_type",
    )


def _complete_rest(properties: Mapping[str, str], out: dict[str, Any]) -> None:
    """Add authentication and TLS, which PyIceberg expects as nested values."""
    uri = _required(properties, "uri").rstrip("/")
    if _NO_BASE.search(uri):
        raise ConfigError(
            "iceberg.catalog.uri is the base of the catalog's paths: it must not contain ?, # or "
            "white space",
            code="catalog_uri",
        )
    if ("credential" in out or "token" in out) and "oauth2-server-uri" not in out:
        out["oauth2-server-uri"] = f"{uri}/v1/oauth/tokens"  # Java's default
    out |= _rest_login(properties)
    out["rest.sigv4.max-retries"] = "0"  # its adapter would send a request up to ten times more
    if ca_bundle := properties.get("ssl.cabundle"):
        out["ssl"] = {"cabundle": ca_bundle}


def _rest_login(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return how requests log in; OAuth needs no more than its own properties."""
    auth = properties.get("rest.auth.type", "").lower()
    match auth:
        case "" | "oauth2":
            return {}
        case "none":
            return {"auth": {"type": "noop"}}
        case "basic":
            user = _required(properties, "rest.auth.basic.username")
            password = _required(properties, "rest.auth.basic.password")
            return {"auth": {"type": auth, auth: {"username": user, "password": password}}}
        case "google" | "entra":
            return {"auth": {"type": auth, auth: {}}}
        case "sigv4":
            return {"rest.sigv4-enabled": "true"}
    raise ConfigError(f"iceberg.catalog.rest.auth.type {auth!r} is not supported", code="auth")


def _database_uri(properties: Mapping[str, str], connect_ms: int, read_ms: int) -> str:
    """Convert an SQLAlchemy or JDBC URL to an SQLAlchemy URL with timeouts."""
    uri = _required(properties, "uri").removeprefix("jdbc:")
    if uri.startswith("sqlite:"):
        path = uri.removeprefix("sqlite:")
        path = path if path.startswith("//") else f"///{path}"
        # the time in seconds for which a writer waits for the lock of the file
        return _with_query(f"sqlite:{path}", timeout=f"{connect_ms / 1000:g}")
    if uri.startswith(("postgresql:", "postgres:", "postgresql+psycopg2:")):
        _, _, rest = uri.partition("://")
        user, password = properties.get("jdbc.user"), properties.get("jdbc.password")
        if user and "@" not in rest.partition("/")[0]:
            rest = f"{quote(user, '')}:{quote(password or '', '')}@{rest}"
        return _with_query(
            f"postgresql+psycopg2://{rest}",
            connect_timeout=str(max(connect_ms // 1000, 1)),
            options=quote(f"-c statement_timeout={read_ms}"),
        )
    raise ConfigError(
        "iceberg.catalog.uri of a SQL catalog must start with sqlite:, postgresql: or their "
        "jdbc: forms",
        code="catalog_uri",
    )


def _with_query(uri: str, **defaults: str) -> str:
    present = urlsplit(uri).query
    missing = [f"{k}={v}" for k, v in defaults.items() if f"{k}=" not in present]
    return uri + ("&" if present else "?") + "&".join(missing) if missing else uri


def _warehouse(location: str) -> str:
    """Return a warehouse with a scheme; a local folder becomes a ``file://`` URI."""
    if "://" in location:
        return location.rstrip("/")
    return f"file://{Path(location.removeprefix('file:')).absolute()}"


def _required(properties: Mapping[str, str], key: str) -> str:
    value = properties.get(key)
    if not value:
        raise ConfigError(f"set iceberg.catalog.{key}: it is required", code="catalog_property")
    return value


def _int_of(properties: Mapping[str, str], key: str, default: int) -> int:
    return _int(key, properties[key]) if key in properties else default


def _int(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ConfigError(
            f"iceberg.catalog.{key} must be a whole number, not {value!r}",
            code="catalog_property",
        ) from None
