"""PyIceberg's ``FileIO`` on PyArrow's file systems, for every store.

Rules of this file:
- One library opens all stores. PyIceberg prefers fsspec for ``abfss``; its clients hold Python's
  lock while they write, and have no time limits (docs/decisions/0040).
- A part of a host's name that a configuration gives holds no other part of an address.
- Exactly one kind of credentials is handed on, so that none is replaced by one of the machine.
- Clients with equal settings and credentials are one client: a table is loaded again in each round,
  and each new client would connect, with TLS, before its first request.
- A client is made under the lock of its own settings. A store that does not answer delays no other.
- A client is never used after a fork: its threads are in the parent only.

Source:
    PyIceberg 0.12.0 ``pyiceberg.io.pyarrow``; PyArrow 26 ``AzureFileSystem``, ``GcsFileSystem``,
    ``S3FileSystem``; Iceberg 1.12.0 ``AzureProperties``, ``GCPProperties``.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow import NativeFile
from pyarrow.fs import (
    AzureFileSystem,
    FileSystem,
    GcsFileSystem,
    LocalFileSystem,
    S3FileSystem,
)
from pyiceberg.io import ARROW_FILE_IO, SCHEMA_TO_FILE_IO
from pyiceberg.io.pyarrow import PyArrowFileIO

from connect.errors import ConfigError

S3_CA_BUNDLE: Final = "s3.ssl.cabundle"
GCS_NO_AUTH: Final = "gcs.no-auth"
GCS_RETRY_S: Final = 60
"""Seconds for which a request to Google's store is repeated; its client's default is 15 minutes."""

_LOCAL: Final = "file"
_AZURE_SCHEMES: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
_AZURE_DEFAULT: Final = "core.windows.net"
_NEVER: Final = dt.datetime(9999, 1, 1, tzinfo=dt.UTC)
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER: Final = re.compile(r"[a-z0-9$][a-z0-9-]{2,62}")
_TENANT: Final = re.compile(r"[A-Za-z0-9.-]{1,128}")
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9.-]{1,255}(:[0-9]{1,5})?")
_SAS: Final = "adls.sas-token"
CLIENTS_MAX: Final = 64
"""Clients that are kept. Catalogs that vend credentials per table need one for each table."""

SETTINGS: Final = ("s3.", "gcs.", "adls.", "client.", "hdfs.", "hf.")
"""Prefixes of the properties that make a client."""


class _LocalFiles(LocalFileSystem):  # type: ignore[misc]  # PyArrow has no types
    """Makes a folder only for a file that lacks one; PyIceberg's makes each path for each file."""

    def open_output_stream(self, path: str, *args: Any, **options: Any) -> NativeFile:
        try:
            return super().open_output_stream(path, *args, **options)
        except FileNotFoundError:
            self.create_dir(str(Path(path).parent), recursive=True)
            return super().open_output_stream(path, *args, **options)


class StoreFileIO(PyArrowFileIO):
    """Opens files of S3, Google's and Azure's stores, HDFS and local folders."""

    @staticmethod
    def parse_location(
        location: str, properties: Mapping[str, Any] | None = None
    ) -> tuple[str, str, str]:
        """Scheme, host and path of a location, the path as its file system takes it.

        The host of an Azure location is the account's. Its container is the first part of the path.
        """
        scheme, host, path = PyArrowFileIO.parse_location(location, dict(properties or {}))
        if scheme in _AZURE_SCHEMES and "@" in host:
            container, _, account = host.partition("@")
            return scheme, account, container + path.removeprefix(host)
        return scheme, host, path

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme == _LOCAL:
            return super()._initialize_fs(scheme, netloc)
        return SHARED_CLIENTS.client(
            scheme, netloc, self.properties, lambda: self._made_fs(scheme, netloc)
        )

    def _made_fs(self, scheme: str, netloc: str | None) -> FileSystem:
        if scheme in _AZURE_SCHEMES:
            return azure_client(self.properties, netloc or "")
        return super()._initialize_fs(scheme, netloc)

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        filesystem = super()._initialize_s3_fs(netloc)
        # a small file is then one request, at its end; otherwise it is an upload of three requests
        more: dict[str, Any] = {"allow_delayed_open": True}
        if bundle := self.properties.get(S3_CA_BUNDLE):
            if not Path(bundle).is_file():
                raise _wrong(S3_CA_BUNDLE, f"names no file on this machine: {bundle}")
            more["tls_ca_file_path"] = bundle
        # PyIceberg hands these options on to no client: the same client again, with them
        _, (options,) = filesystem.__reduce__()
        return S3FileSystem(**{**options, **more})

    def _initialize_local_fs(self) -> FileSystem:
        return _LocalFiles()

    def _initialize_gcs_fs(self) -> FileSystem:
        return gcs_client(self.properties)


# some clients of PyIceberg choose by this table, and by nothing else
SCHEMA_TO_FILE_IO.update(
    {
        scheme: [f"{StoreFileIO.__module__}.{StoreFileIO.__name__}"]
        for scheme, (first, *_) in SCHEMA_TO_FILE_IO.items()
        if first == ARROW_FILE_IO or scheme in _AZURE_SCHEMES
    }
)


def gcs_client(properties: Mapping[str, Any]) -> GcsFileSystem:
    """Return a client of Google Cloud Storage.

    Args:
        properties: ``gcs.*``. Without a token, the credentials of the machine are used.

    Raises:
        ConfigError: ``catalog_property``: a value cannot be used.
    """
    options: dict[str, Any] = {"retry_time_limit": dt.timedelta(seconds=GCS_RETRY_S)}
    if endpoint := properties.get("gcs.service.host"):
        url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options["scheme"] = url.scheme
        options["endpoint_override"] = _matched(_AUTHORITY, url.netloc, "gcs.service.host")
    if project := properties.get("gcs.project-id"):
        options["project_id"] = project
    if location := properties.get("gcs.default-bucket-location"):
        options["default_bucket_location"] = location
    if is_anonymous(properties):
        return GcsFileSystem(anonymous=True, **options)
    if token := properties.get("gcs.oauth2.token"):
        expires = properties.get("gcs.oauth2.token-expires-at")
        options["access_token"] = token
        options["credential_token_expiration"] = _instant(expires) if expires else _NEVER
    return GcsFileSystem(**options)


def is_anonymous(properties: Mapping[str, Any]) -> bool:
    """Whether requests to Google's store carry no credentials."""
    return str(properties.get(GCS_NO_AUTH, "")).lower() == "true"


def azure_client(properties: Mapping[str, Any], host: str) -> AzureFileSystem:
    """Return a client of one account of Azure's store.

    Args:
        properties: ``adls.*``. Without credentials, those of the machine are used.
        host: of the location, ``account.dfs.core.windows.net``; may be empty if
            ``adls.account-name`` is given.

    Raises:
        ConfigError: ``catalog_property``: a value is missing or cannot be used.
    """
    account, blob, dfs = azure_hosts(properties, host)
    options: dict[str, Any] = {"account_name": account}
    for name, authority in (("blob", blob), ("dfs", dfs)):
        options[f"{name}_storage_authority"] = authority
        if scheme := properties.get(f"adls.{name}-storage-scheme"):
            if scheme not in {"http", "https"}:
                raise _wrong(f"adls.{name}-storage-scheme", "must be http or https")
            options[f"{name}_storage_scheme"] = scheme
    return AzureFileSystem(**options, **_azure_credentials(properties, host))


def azure_hosts(properties: Mapping[str, Any], host: str) -> tuple[str, str, str]:
    """Account, and addresses of its blob and its data lake service.

    Raises:
        ConfigError: ``catalog_property``: one cannot be used.
    """
    named, _, domain = host.partition(".")
    account = properties.get("adls.account-name") or named
    if not account:
        raise _wrong("adls.account-name", "is missing, and the location names no account")
    _matched(_ACCOUNT, account, "adls.account-name")
    base = domain.removeprefix("dfs.").removeprefix("blob.") or _AZURE_DEFAULT
    hosts = []
    for service in ("blob", "dfs"):
        key = f"adls.{service}-storage-authority"
        authority = properties.get(key) or f"{account}.{service}.{base}"
        hosts.append(_matched(_AUTHORITY, authority, key))
    return account, hosts[0], hosts[1]


def sas_token(properties: Mapping[str, Any], host: str) -> str | None:
    """The shared access signature for an account; catalogs vend one under the account's host."""
    keys = (f"{_SAS}.{host}", f"{_SAS}.{host.partition('.')[0]}", _SAS)
    return next((str(properties[key]) for key in keys if properties.get(key)), None)


def _azure_credentials(properties: Mapping[str, Any], host: str) -> dict[str, str]:
    if token := sas_token(properties, host):
        return {"sas_token": "?" + token.removeprefix("?")}  # appended to addresses as it is
    if key := properties.get("adls.account-key"):
        try:
            base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            raise _wrong("adls.account-key", "is not the Base64 text of a key") from None
        return {"account_key": key}
    names = ("tenant_id", "client_id", "client_secret")
    credentials = {name: properties.get(f"adls.{name.replace('_', '-')}") for name in names}
    set_credentials = {name: str(value) for name, value in credentials.items() if value}
    if (
        set_credentials
        and set_credentials.keys() != {"client_id"}
        and len(set_credentials) < len(names)
    ):
        missing = next(name for name in names if name not in set_credentials).replace("_", "-")
        raise _wrong(f"adls.{missing}", "is missing: tenant, client and secret go together")
    if "tenant_id" in set_credentials:
        _matched(_TENANT, set_credentials["tenant_id"], "adls.tenant-id")
    # none: the credentials of the machine; the client alone: its managed identity
    return set_credentials


def container_of(location: str) -> str | None:
    """The container of an Azure location; None for other locations.

    Raises:
        ConfigError: ``catalog_property``: it is no container's name.
    """
    scheme, _, path = StoreFileIO.parse_location(location)
    if scheme not in _AZURE_SCHEMES:
        return None
    return _matched(_CONTAINER, path.partition("/")[0], "the location's container")


def _instant(milliseconds: str) -> dt.datetime:
    try:
        return dt.datetime.fromtimestamp(int(milliseconds) / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        raise _wrong("gcs.oauth2.token-expires-at", "must be milliseconds since 1970") from None


def _matched(pattern: re.Pattern[str], value: str, key: str) -> str:
    if not pattern.fullmatch(value):
        raise _wrong(key, f"cannot be {value!r}")
    return value


def _wrong(key: str, reason: str) -> ConfigError:
    return ConfigError(f"{key} {reason}", code="catalog_property", property=key)


@dataclass(slots=True)
class _Place:
    """A client, once it is made."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    client: FileSystem | None = None


class SharedClients:
    """Keeps the clients that were used last.

    Attributes:
        made_count: how many clients were made.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()
        self._inherited: list[object] = []
        self.made_count = 0

    def client(
        self,
        scheme: str,
        host: str | None,
        properties: Mapping[str, Any],
        make: Callable[[], FileSystem],
    ) -> FileSystem:
        """Return the client for a host and properties; make it if there is none.

        Args:
            scheme: of the location.
            host: of the location.
            properties: of the ``FileIO``; only ``SETTINGS`` count.
            make: makes the client; its errors are raised.
        """
        settings = frozenset((k, str(v)) for k, v in properties.items() if k.startswith(SETTINGS))
        key = scheme, host, settings
        with self._lock:
            place = self._places.setdefault(key, _Place())
            self._places.move_to_end(key)
            while len(self._places) > CLIENTS_MAX:
                self._places.popitem(last=False)
        with place.lock:
            if place.client is None:
                place.client = make()
                self.made_count += 1
            return place.client

    def forget_inherited(self) -> None:
        """Use no client of the parent process; they are kept, because ending one would hang."""
        self._inherited.append(self._places)
        self._places = OrderedDict()
        self._lock = threading.Lock()


SHARED_CLIENTS: Final = SharedClients()
os.register_at_fork(after_in_child=SHARED_CLIENTS.forget_inherited)
