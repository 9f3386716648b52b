"""Where tables are, and keys of object stores from the variables of kafka-delta-ingest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from connect.errors import ConfigError
from connect.operations.ingest.placeholder_secrets import from_environment

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
