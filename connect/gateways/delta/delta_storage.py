"""Options with which the Delta library opens the object store of PyIceberg's properties.

Rules of this file:
- The same ``iceberg.catalog.*`` keys open the store for files and for the table's log.
- Every request has a time limit. Retries end before the next round.
- The library reads credentials of environment and machine for itself. Where connectors may not use
  them, requests are anonymous or the connector is refused before (``own_credentials``), and the
  environment has none (``ambient_variables``).

Source:
    ``object_store`` 0.13: ``AmazonS3ConfigKey``, ``AzureConfigKey``,
    ``ClientConfigKey``; delta-rs: ``max_retries``, ``retry_timeout``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connect.errors import ConfigError
from connect.gateways.access_policy import access_policy
from connect.gateways.storage.store_file_io import (
    S3_CA_BUNDLE,
    StoreFileIO,
    azure_hosts,
    container_of,
    sas_token,
)

_RETRIES: Final = {"max_retries": "3", "retry_timeout": "60s"}
_S3: Final = {
    "access-key-id": "aws_access_key_id",
    "secret-access-key": "aws_secret_access_key",
    "session-token": "aws_session_token",
    "region": "aws_region",
}
_AZURE: Final = {
    "adls.account-key": "azure_storage_account_key",
    "adls.tenant-id": "azure_storage_tenant_id",
    "adls.client-id": "azure_storage_client_id",
    "adls.client-secret": "azure_storage_client_secret",
}
_REGION: Final = "us-east-1"  # any, for stores other than Amazon's, which ignore it


def storage_options(properties: Mapping[str, Any], location: str) -> dict[str, str]:
    """Return the library's options for a table at ``location``.

    Args:
        properties: of the ``FileIO`` that opens the table's files.
        location: with a scheme.

    Raises:
        ConfigError: ``delta_location``: Delta tables cannot be in this store; ``host_refused``.
    """
    scheme = location.partition(":")[0].lower()
    options = {
        **_RETRIES,
        "timeout": _seconds(properties, "s3.request-timeout"),
        "connect_timeout": _seconds(properties, "s3.connect-timeout"),
    }
    if scheme == "file":
        return {}
    if scheme in {"s3", "s3a"}:
        return {**options, **_s3(properties)}
    if container_of(location) is not None:
        return {**options, **_azure(properties, StoreFileIO.parse_location(location)[1])}
    raise ConfigError(
        f"Delta tables cannot be at {location}: use a local folder, s3 or abfss",
        code="delta_location",
    )


def _seconds(properties: Mapping[str, Any], key: str) -> str:
    return f"{max(1, round(float(properties[key])))}s"


def _s3(properties: Mapping[str, Any]) -> dict[str, str]:
    if properties.get(S3_CA_BUNDLE):
        raise ConfigError(
            "iceberg.catalog.s3.ssl.cabundle is not supported with Delta tables: add the "
            "certificate to those of the node's machine",
            code="delta_location",
        )
    options = {}
    for key, option in _S3.items():
        value = properties.get(f"s3.{key}") or properties.get(f"client.{key}")
        if value:
            options[option] = str(value)
    options.setdefault("aws_region", _REGION)
    if endpoint := properties.get("s3.endpoint"):
        options["aws_endpoint"] = str(endpoint)
        options["aws_allow_http"] = str(str(endpoint).startswith("http://")).lower()
    is_virtual = str(properties.get("s3.force-virtual-addressing", "")).lower() == "true"
    options["aws_virtual_hosted_style_request"] = str(is_virtual).lower()
    if str(properties.get("s3.anonymous", "")).lower() == "true":
        options["aws_skip_signature"] = "true"
    return options


def _azure(properties: Mapping[str, Any], host: str) -> dict[str, str]:
    account, blob, _ = azure_hosts(properties, host)
    options = {"azure_storage_account_name": account}
    if authority := properties.get("adls.blob-storage-authority"):
        access_policy().check_store(str(authority).partition(":")[0])
        protocol = properties.get("adls.blob-storage-scheme") or "https"
        options["azure_storage_endpoint"] = f"{protocol}://{blob}/{account}"
        options["azure_allow_http"] = str(protocol == "http").lower()
    if token := sas_token(properties, host):
        return {**options, "azure_storage_sas_key": token.removeprefix("?")}
    credentials = {
        option: str(properties[key]) for key, option in _AZURE.items() if properties.get(key)
    }
    if "azure_storage_account_key" in credentials:
        credentials = {"azure_storage_account_key": credentials["azure_storage_account_key"]}
    return {**options, **credentials}
