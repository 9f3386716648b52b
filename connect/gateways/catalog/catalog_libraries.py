"""Libraries that only some catalogs need, and the extras of this package that bring them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Final

from connect.config.table_formats import DELTA, FORMAT, PARQUET
from connect.errors import ConfigError
from connect.gateways.catalog_properties import ClientConfig, folder_places

_OF_KIND: Final = {
    DELTA: ("deltalake", "icefloe[delta]"),
    "bigquery": ("google.cloud.bigquery", "icefloe[gcp]"),
    "dynamodb": ("boto3", "icefloe[aws]"),
    "glue": ("boto3", "icefloe[glue]"),
    "hive": ("thrift", "icefloe[hive]"),
}
_OF_AUTH: Final = {
    "entra": ("azure.identity", "icefloe[azure]"),
    "google": ("google.auth", "icefloe[gcp]"),
}


def is_installed(library: str) -> bool:
    """Whether a module, or one in a package, can be imported."""
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:  # of a parent package
        return False


def require_libraries(
    config: ClientConfig, has_library: Callable[[str], bool] = is_installed
) -> None:
    """Check that the libraries of a catalog's client are installed.

    Args:
        config: of the client.
        has_library: whether one is installed.

    Raises:
        ConfigError: ``library_missing``; names what to install.
    """
    for feature, library, package in _needed(config):
        if not has_library(library):
            raise ConfigError(
                f"{feature} needs the library {library}, which is not installed on this node: "
                f"pip install '{package}'",
                code="library_missing",
            )


def _needed(config: ClientConfig) -> Iterator[tuple[str, str, str]]:
    properties = config.properties
    if config.kind in _OF_KIND:
        named = FORMAT if config.kind == DELTA else "iceberg.catalog.type"
        yield f"{named} {config.kind}", *_OF_KIND[config.kind]
    is_on_s3 = any(place.startswith("s3") for place in folder_places(properties).values())
    if config.kind == PARQUET and is_on_s3:
        yield f"{FORMAT} {PARQUET} on S3", "boto3", "icefloe[aws]"
    auth = (properties.get("auth") or {}).get("type")
    if auth in _OF_AUTH:
        yield f"iceberg.catalog.rest.auth.type {auth}", *_OF_AUTH[auth]
    if str(properties.get("rest.sigv4-enabled", "")).lower() == "true":
        yield "signing of requests (sigv4)", "boto3", "icefloe[aws]"
    if str(properties.get("hive.kerberos-authentication", "")).lower() == "true":
        package = "pyiceberg[hive-kerberos]"  # built from source, against Kerberos of the machine
        yield "iceberg.catalog.hive.kerberos-authentication", "kerberos", package
