"""PyIceberg's catalog clients with time limits, and without imports that others choose.

Rules of this file:
- A client reads files with the catalog's properties and the credentials the catalog vends for
  the table; table properties, which any table owner may set, have no say in it.
- Only requests that change nothing are repeated, and only after a 429.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import Capability, TableResponse
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from requests import PreparedRequest, Session
from requests.adapters import HTTPAdapter
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, Retry

import connect.model.table_types  # noqa: F401 - schemas are parsed with its types
from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.config.table_formats import FOLDER_FORMATS
from connect.errors import CommitRefused
from connect.gateways.access_policy import access_policy
from connect.gateways.catalog.folder_tables import open_folder_tables
from connect.gateways.catalog.metadata_files import (
    HistoryNeeded,
    MetadataFiles,
    WithHistoryText,
    adds_only,
)
from connect.gateways.catalog.metadata_v3 import write_metadata
from connect.gateways.catalog.rest_commits import RestCommits
from connect.gateways.catalog.rest_requests import body_of, raise_for
from connect.gateways.catalog.table_metadata import (
    changed_metadata,
    referenced_only,
    table_response,
)
from connect.gateways.catalog.table_properties import location_provider
from connect.gateways.catalog_properties import CatalogKind, python_modules_in, refuse_places
from connect.gateways.folder_catalog import FolderCatalog
from connect.gateways.guarded_http import GuardedAdapter
from connect.gateways.storage.guarded_io import guarded
from connect.gateways.storage.object_store import (
    check_storage,
    own_credentials,
    require_own_keys,
    signs_remotely,
    verify_written,
)

_CLASSES: Mapping[str, tuple[str, str]] = {
    "sql": ("connect.gateways.catalog.sql_catalog", "LeanSqlCatalog"),
    "hive": ("pyiceberg.catalog.hive", "HiveCatalog"),
    "glue": ("pyiceberg.catalog.glue", "GlueCatalog"),
    "dynamodb": ("pyiceberg.catalog.dynamodb", "DynamoDbCatalog"),
    "bigquery": ("pyiceberg.catalog.bigquery_metastore", "BigQueryMetastoreCatalog"),
}


_REMOTE_SIGNING = "s3.remote-signing-enabled"
PATIENCE_TRIES = 4
RETRY_AFTER_S_MAX = 5.0


def refuse_python_modules(properties: Mapping[str, Any], *, table: str | None = None) -> None:
    """Raise ``CommitRefused`` when a property would make PyIceberg import a Python module."""
    if named := python_modules_in(properties):
        raise CommitRefused(
            f"property {named[0]} would import a Python module and is refused",
            code="python_module_refused",
            table=table,
        )


class _BoundedRetryAfter(Retry):
    """Retries reads after status 429, with a bounded wait; commits are not retried."""

    def get_retry_after(self, response: BaseHTTPResponse) -> float | None:
        """Return the seconds of ``Retry-After``, at most ``RETRY_AFTER_S_MAX``."""
        asked_s = super().get_retry_after(response)
        return None if asked_s is None else min(asked_s, RETRY_AFTER_S_MAX)


class _OriginAdapter(HTTPAdapter):
    """Finds the connections of an origin and its settings once; for one thread."""

    def __init__(self, patience: Retry) -> None:
        self._pools: dict[tuple[str, ...], HTTPConnectionPool] = {}
        super().__init__(max_retries=patience)

    def get_connection_with_tls_context(
        self,
        request: PreparedRequest,
        verify: Any,
        proxies: Any = None,
        cert: Any = None,
    ) -> HTTPConnectionPool:
        """Return the connections for a request, as the inner adapter chooses them."""
        origin = (request.url or "").split("/", 3)[:3]
        key = (*origin, repr((verify, proxies, cert)))
        pool = self._pools.get(key)
        if pool is None:
            pool = super().get_connection_with_tls_context(request, verify, proxies, cert)
            self._pools[key] = pool
        return pool

    def close(self) -> None:
        """Close the connections."""
        self._pools.clear()
        super().close()


def _adapter() -> HTTPAdapter:
    patience = _BoundedRetryAfter(
        total=None,
        connect=0,
        read=False,
        redirect=0,
        other=0,
        status=PATIENCE_TRIES,
        status_forcelist=[429],
        allowed_methods={"GET", "HEAD"},
        raise_on_status=False,
        backoff_factor=0.25,
        backoff_jitter=0.25,
    )
    return _OriginAdapter(patience)


class GuardedRest(RestCommits):
    """A REST catalog client for one thread."""

    def __init__(
        self, name: str, connect_s: float, read_s: float, properties: Mapping[str, Any]
    ) -> None:
        self._limits = (connect_s, read_s)
        # said by the connector: a catalog's answer may replace it in ``properties``
        self._opens_stores = properties.get(_REMOTE_SIGNING, "").lower() == "false"
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        # The first thing PyIceberg does with a new session, before it asks for a token.
        super()._config_headers(session)
        session.trust_env = access_policy().has_ambient  # logins of .netrc, proxies
        for scheme in ("http://", "https://"):
            session.mount(scheme, GuardedAdapter(_adapter(), *self._limits))

    def _init_sigv4(self, session: Session) -> None:
        if not access_policy().has_ambient:
            require_own_keys(self.properties, "rest.sigv4-enabled", "client")
        super()._init_sigv4(session)
        session.mount(self.uri, GuardedAdapter(session.get_adapter(self.uri), *self._limits))

    def _fetch_config(self) -> None:
        own_auth = self.properties.get("auth")
        super()._fetch_config()
        answered = {k: v for k, v in self.properties.items() if k != "auth" or v != own_auth}
        refuse_python_modules(answered)
        access_policy().check_addresses(answered)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table with all of its snapshots."""
        return self._loaded(self.identifier_to_tuple(identifier), with_history=True)

    def load_references(self, identifier: Identifier) -> Table:
        """Load a table without the snapshots that no branch and no tag names.

        A server may not know the parameter: then the others are dropped by this method.
        """
        return self._loaded(identifier, with_history=False)

    def _loaded(self, identifier: Identifier, *, with_history: bool) -> Table:
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        try:
            return self._load_once(identifier, with_history=with_history)
        except (AuthorizationExpiredError, UnauthorizedError):
            self._refresh_token()
            return self._load_once(identifier, with_history=with_history)

    def _load_once(self, identifier: Identifier, *, with_history: bool) -> Table:
        response = self._load_response(identifier, with_history=with_history)
        raise_for(response, {404: NoSuchTableError})
        answer = table_response(body_of(response), with_history=with_history)
        return self._response_to_table(identifier, answer)

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        refuse_python_modules(properties)
        if not self._opens_stores and signs_remotely({**self.properties, **properties}):
            raise CommitRefused(
                "the catalog vends no credentials for S3 and signs requests itself (remote "
                "signing), which is not supported: let it vend credentials, or give the connector "
                f"iceberg.catalog.s3.* keys or iceberg.catalog.{_REMOTE_SIGNING}=false",
                code="remote_signing_unsupported",
            )
        return guarded(super()._load_file_io(properties, location))

    def _response_to_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> Table:
        refuse_python_modules(table_response.metadata.properties, table=".".join(identifier_tuple))
        vended = self._resolve_storage_credentials(
            table_response.storage_credentials, table_response.metadata_location
        )
        return Table(
            identifier=identifier_tuple,
            metadata_location=table_response.metadata_location or "",
            metadata=table_response.metadata,
            io=self._load_file_io(
                {**table_response.config, **vended}, table_response.metadata_location
            ),
            catalog=self,
            config=table_response.config,
        )


class GuardedMetastore(MetastoreCatalog):
    """Put before a client that reads, checks and writes metadata files itself."""

    locations: LocationPolicy = EVERYWHERE

    def __init__(self, name: str, **properties: str) -> None:
        self._files = MetadataFiles()
        super().__init__(name, **properties)

    def forget_text(self) -> None:
        """Keep no text of the metadata file that this thread read last."""
        self._files.forget_text()

    def load_references(self, identifier: Identifier) -> Table:
        """Load a table without the snapshots that no branch and no tag names."""
        with self._files.without_history():
            table = self.load_table(identifier)
        table.metadata = referenced_only(table.metadata)
        return table

    def commit_unread(
        self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> CommitTableResponse:
        """Commit as ``commit_table``; the history of the table is copied, not parsed.

        Returns:
            The metadata, perhaps without its history.
        """
        change = table, tuple(requirements), tuple(updates)
        if adds_only(updates):  # otherwise what is in the history counts
            with contextlib.suppress(HistoryNeeded), self._files.without_history():
                return self.commit_table(*change)
        return self.commit_table(*change)

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Commit as the client does; no text of a metadata file is kept after that."""
        try:
            return super().commit_table(table, requirements, updates)  # type: ignore[safe-super]  # of the client
        finally:
            self._files.forget_text()

    def _load_file_io(
        self, properties: Properties = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        refuse_python_modules(properties)
        self._refuse_metadata_at(location)
        io = guarded(super()._load_file_io(EMPTY_DICT, location))
        # without properties: those of the table are in the file that is to be read
        return self._files.file_io(io) if properties is EMPTY_DICT else io

    @property
    def _leaves_history_out(self) -> bool:
        """Whether this thread reads metadata without its history now."""
        return self._files.leaves_out

    def _convert_orm_to_iceberg(self, orm_table: Any) -> Table:
        """A SQL catalog's row opens the file by another way than the other clients."""
        self._refuse_metadata_at(orm_table.metadata_location)
        table: Table = super()._convert_orm_to_iceberg(orm_table)  # type: ignore[misc]  # of SqlCatalog
        return table

    def _refuse_metadata_at(self, location: str | None) -> None:
        """Refuse metadata outside the locations: a catalog could name any file of this machine."""
        if location is not None and (why := self.locations.refusal(location)) is not None:
            raise CommitRefused(f"metadata at {location} {why}", code="location_not_granted")
        if location is not None:
            check_storage(self.properties, location)

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        write_metadata(metadata, io, metadata_path)
        size = metadata.file_bytes if isinstance(metadata, WithHistoryText) else None
        verify_written(io, {metadata_path: size})

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        for update in updates:
            if isinstance(update, SetPropertiesUpdate):
                refuse_python_modules(update.updates)  # they choose a class within this call
        if current_table is None:
            return super()._update_and_stage_table(None, table_identifier, requirements, updates)
        for requirement in _check_strictly(current_table.metadata, requirements, updates):
            requirement.validate(current_table.metadata)
        updated = changed_metadata(current_table.metadata, updates, current_table.metadata_location)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        places = location_provider(updated.location, updated.properties)
        location = places.new_table_metadata_file_location(version)
        if self._files.leaves_out:
            updated = self._files.with_history(current_table, updated, location)
        return StagedTable(
            identifier=table_identifier,
            metadata=updated,
            metadata_location=location,
            io=self._load_file_io(location=location),
            catalog=self,
        )


def open_metastore(
    name: str,
    kind: CatalogKind,
    properties: Mapping[str, Any],
    locations: LocationPolicy = EVERYWHERE,
) -> Catalog:
    """Open a catalog whose client writes the metadata files: every kind but REST.

    Raises:
        ConfigError: ``location_not_granted``: its warehouse or its own file lies where the
            operator does not let it.
    """
    refuse_places(properties, locations)
    if str(properties.get("uri", "")).startswith("postgresql"):
        importlib.import_module("connect.gateways.catalog.postgres_wait").limit_waiting()
    if kind == "hive":
        importlib.import_module("connect.gateways.catalog.hive_sockets").limit_sockets()
    if kind in FOLDER_FORMATS:
        return FolderCatalog(name, open_folder_tables(kind, properties, locations))
    module, class_name = _CLASSES[kind]
    catalog_class = getattr(importlib.import_module(module), class_name)
    bases: tuple[type, ...] = (GuardedMetastore, catalog_class)
    if kind == "glue":
        limited = importlib.import_module("connect.gateways.catalog.aws_connections")
        bases = (limited.LimitedGlue, *bases)
    guarded = type(f"Guarded{class_name}", bases, {"locations": locations})
    client_class = cast(type[Catalog], guarded)
    return client_class(name, **own_credentials(properties))


def _check_strictly(
    metadata: TableMetadata,
    requirements: Sequence[TableRequirement],
    updates: Sequence[TableUpdate],
) -> tuple[TableRequirement, ...]:
    """Check the requirements that PyIceberg checks wrongly or not at all; return the others.

    For SQL, Hive, Glue and DynamoDB the client checks requirements itself, against the metadata
    that it has just loaded and before a compare-and-swap. A REST server makes its own checks.

    - A branch that must not exist: PyIceberg refuses any branch but main on a table without
      snapshots.
    - Sequence numbers belong to the table: for a stale one PyIceberg raises a bare ValueError. For
      a snapshot without a parent it does not check the number.

    Raises:
        CommitFailedException: a requirement failed.
    """
    left = []
    for requirement in requirements:
        if isinstance(requirement, AssertRefSnapshotId) and requirement.snapshot_id is None:
            if requirement.ref in metadata.refs:
                raise CommitFailedException(
                    f"Requirement failed: {requirement.ref} was created concurrently"
                )
        else:
            left.append(requirement)
    last = getattr(metadata, "last_sequence_number", 0)
    for update in updates:
        if isinstance(update, AddSnapshotUpdate) and update.snapshot.sequence_number:
            if update.snapshot.sequence_number <= last:
                raise CommitFailedException(
                    f"Requirement failed: sequence number {update.snapshot.sequence_number} is "
                    f"not above {last}"
                )
            break
    return tuple(left)
