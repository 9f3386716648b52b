"""Iceberg catalogs: opened from the Java sink's keys, one attempt per commit, one tree of errors.

Rules of this file:
- ``commit`` sends a change once. PyIceberg itself sends a request again after a refused token, so
  even a conflict may follow a commit that succeeded: callers search for their snapshot after any
  error.
- Only this module maps exceptions of the clients (protocol, section 3, "Outcomes").
- Every request has a time limit.
- Nothing a catalog answers or a table's owner sets is imported as a Python module, and table
  properties never choose where files are read from.
- A table outside the locations that the operator grants is refused, even if the catalog returns it.
- A REST client keeps its session in a ``requests.Session``, which is not made for threads, so every
  thread gets a client of its own. SQL clients share one pool of connections.
- The client of a thread that has ended is used by the next thread. A worker has a new thread for
  each streaming query, and each client has open connections.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from sqlalchemy.exc import IntegrityError

from connect.clock import SystemClock
from connect.config.location_policy import (
    EVERYWHERE,
    LocationPolicy,
    table_places,
)
from connect.errors import CommitRefused, CommitStateUnknown, IcefloeError
from connect.gateways.access_policy import access_policy
from connect.gateways.catalog.catalog_clients import (
    GuardedMetastore,
    GuardedRest,
    open_metastore,
    refuse_python_modules,
)
from connect.gateways.catalog.catalog_errors import commit_error, opening_error, request_error
from connect.gateways.catalog.catalog_libraries import require_libraries
from connect.gateways.catalog.catalog_policy import check_catalog, database_uri
from connect.gateways.catalog.rest_commits import TableChange
from connect.gateways.catalog.table_metadata import changed_metadata, referenced_only
from connect.gateways.catalog_properties import ClientConfig, client_config

__all__ = ["CatalogGateway", "TableChange", "open_catalog"]

NAMESPACE_TRIES = 3
Identifier = tuple[str, ...]
ObserveRequest: TypeAlias = Callable[[str, str, int], None]
_CLOCK = SystemClock()


def ignore_request(operation: str, outcome: str, duration_ms: int) -> None:
    """Observe nothing."""


class _Requests:
    """Sends the requests of one catalog, in any thread; arguments as ``CatalogGateway``."""

    def __init__(
        self,
        name: str,
        config: ClientConfig,
        locations: LocationPolicy = EVERYWHERE,
        observe: ObserveRequest = ignore_request,
    ) -> None:
        self.name = name
        self.observe = observe
        self.config = config
        self.locations = locations
        self._clients = ClientPool(name, config, locations)

    @contextlib.contextmanager
    def _request(
        self,
        operation: str,
        identifier: Sequence[str],
        to_error: Callable[[Exception], IcefloeError] = request_error,
    ) -> Iterator[None]:
        """Map the errors of an operation, and report its duration."""
        started_ms, outcome = _CLOCK.monotonic_ms(), "ok"
        try:
            with _mapped(identifier, to_error):
                yield
        except IcefloeError as error:
            outcome = error.code
            raise
        finally:
            self.observe(operation, outcome, _CLOCK.monotonic_ms() - started_ms)

    def _judged(self, table: Table) -> Table:
        self._refuse_locations(table_places(table.location(), table.properties))
        return table

    def _refuse_locations(self, locations: Sequence[str]) -> None:
        if (why := self.locations.refusals(locations)) is not None:
            raise CommitRefused(why, code="location_not_granted")

    def close(self) -> None:
        """Close connections of all threads; the gateway must not be used again."""
        self._clients.close()

    def _client(self) -> Catalog:
        return self._clients.get()


class CatalogGateway(_Requests):
    """One catalog; safe to use from many threads.

    Attributes:
        name: the catalog's name; a SQL catalog's rows carry it.
        config: what the client was opened with.
        locations: where its tables may lie.
        observe: called after each operation with its name, its outcome (``ok`` or the error's
            code) and its milliseconds.
    """

    @property
    def request_timeout_ms(self) -> int:
        """After this long no request sent before can still be under way on our side."""
        return self.config.connect_timeout_ms + self.config.read_timeout_ms

    def load(self, identifier: Sequence[str], *, with_history: bool = True) -> Table:
        """The table as it is now.

        Args:
            identifier: of the table.
            with_history: False leaves out snapshots that no branch and no tag names. A REST catalog
                is asked for no more.

        Raises:
            CommitRefused: ``table_missing``, ``unauthorized``, ``forbidden``,
                ``python_module_refused``, ``metadata_missing``, ``metadata_unreadable``,
                ``unsupported_type``, ``location_not_granted``.
            RetriableError: ``catalog_unavailable``.
        """
        with self._request("load", identifier):
            client, key = self._client(), tuple(identifier)
            if isinstance(client, GuardedMetastore):
                client.forget_text()  # each load reads the file; a commit after it need not
            if not with_history and isinstance(client, GuardedRest | GuardedMetastore):
                return self._judged(client.load_references(key))
            table = client.load_table(key)
            if not with_history:
                table.metadata = referenced_only(table.metadata)
            return self._judged(table)

    def find(self, name: str) -> Table | None:
        """Return the table ``namespace.table``, None when it does not exist; raises as ``load``."""
        try:
            return self.load(name.split("."))
        except CommitRefused as error:
            if error.code != "table_missing":
                raise
            return None

    def exists(self, identifier: Sequence[str]) -> bool:
        """Whether the table is there; raises as ``load``, except that it may be missing."""
        with self._request("load", identifier):
            try:
                self._client().load_table(tuple(identifier))
            except (NoSuchTableError, NoSuchNamespaceError):
                return False
            return True

    def create(
        self,
        identifier: Sequence[str],
        schema: Schema,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        properties: Mapping[str, str] | None = None,
        *,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        location: str | None = None,
    ) -> Table:
        """Create a table, and its namespace where that is missing.

        Returns:
            The new table, or the existing one if another process created it first.

        Raises:
            CommitRefused: as ``load``, and ``catalog_refused`` for a table the catalog won't have.
            RetriableError: ``catalog_unavailable``; the table may exist, ask again.
        """
        key = tuple(identifier)
        refuse_python_modules(properties or {}, table=".".join(key))
        if location is not None:
            self._refuse_locations(table_places(location, properties or {}))
        with self._request("create", key):
            client = self._client()

            def create() -> Table:
                return client.create_table(
                    key, schema, location, partition_spec, sort_order, dict(properties or {})
                )

            try:
                try:
                    return self._judged(create())
                except (NoSuchNamespaceError, NoSuchTableError):
                    for level in range(1, len(key)):
                        _create_namespace(client, key[:level])
                    return self._judged(create())
            except TableAlreadyExistsError:
                return self._judged(client.load_table(key))

    def commit(
        self,
        table: Table,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        *,
        reads_answer: bool = True,
    ) -> Table:
        """Send one conditional change of a table, once.

        Args:
            table: as it was loaded.
            requirements: hold when the change is applied.
            updates: the change.
            reads_answer: False does not parse the answer of a REST catalog, which has all
                snapshots. Other catalogs then copy them unread from one metadata file to the next.
                Changes that others made since the table was loaded are then not in the result.

        Returns:
            The table after it; the one given is left as it was.

        Raises:
            CommitConflict: a requirement failed. CommitStateUnknown: perhaps applied.
            CommitRefused: the catalog refuses it. After each of them the change may be applied.
        """
        client = self._client()
        if not reads_answer and isinstance(client, GuardedRest):
            with self._request("commit", table.name(), commit_error):
                client.commit_unread(table, requirements, updates)
            metadata = changed_metadata(table.metadata, tuple(updates))
            return _changed(table, metadata, table.metadata_location, client)
        metastore = None
        if not reads_answer and isinstance(client, GuardedMetastore):
            metastore = client
        change = table, tuple(requirements), tuple(updates)
        with self._request("commit", table.name(), commit_error):
            response = (metastore.commit_unread if metastore else client.commit_table)(*change)
        if response.metadata.table_uuid != table.metadata.table_uuid:
            raise CommitStateUnknown(
                "the catalog answered with another table", table=".".join(table.name())
            )
        refuse_python_modules(response.metadata.properties, table=".".join(table.name()))
        metadata = response.metadata
        if metastore is not None:
            metadata = changed_metadata(table.metadata, tuple(updates), table.metadata_location)
        return _changed(table, metadata, response.metadata_location, client)

    def commit_together(self, changes: Sequence[TableChange]) -> None:
        """Send conditional changes of several tables as one transaction, once.

        No answer, not even a success, is certain for a single table: read each table.

        Raises:
            CommitConflict, CommitStateUnknown, CommitRefused: as ``commit``; a refusal may be
                about any of the tables. ``multi_table_unsupported``: nothing was sent.
            RetriableError: ``catalog_unavailable``: nothing was sent.
        """
        with _mapped(()):
            client = self._client()
        if not (isinstance(client, GuardedRest) and client.has_transactions):
            raise CommitRefused(
                "the catalog does not offer to commit to several tables at once",
                code="multi_table_unsupported",
            )
        with self._request("commit_together", (), commit_error):
            client.commit_transaction(changes)

    def drop(self, identifier: Sequence[str]) -> None:
        """Drop a table, its files with it where that may be; one that is gone is no error.

        Raises:
            CommitRefused, RetriableError: as ``load``.
        """
        key = tuple(identifier)
        with (
            self._request("drop", key),
            contextlib.suppress(NoSuchTableError, NoSuchNamespaceError),
        ):
            try:
                self._client().purge_table(key)
            except (BadRequestError, ForbiddenError, NotImplementedError):
                self._client().drop_table(key)

    def has_namespace(self, namespace: Sequence[str]) -> bool:
        """Whether the namespace is there; raises as ``load``."""
        with self._request("load_namespace", namespace):
            try:
                self._client().load_namespace_properties(tuple(namespace))
            except NoSuchNamespaceError:
                return False
            return True

    def drop_namespace(self, namespace: Sequence[str]) -> None:
        """Drop an empty namespace; one that is gone is no error. Raises as ``load``."""
        with self._request("drop_namespace", namespace), contextlib.suppress(NoSuchNamespaceError):
            self._client().drop_namespace(tuple(namespace))

    @property
    def has_transactions(self) -> bool:
        """Whether ``commit_together`` is offered. It may still not be atomic."""
        with _mapped(()):
            client = self._client()
        return isinstance(client, GuardedRest) and client.has_transactions


def _changed(table: Table, metadata: TableMetadata, location: str, client: Catalog) -> Table:
    return Table(
        identifier=table.name(),
        metadata=metadata,
        metadata_location=location,
        io=table.io,
        catalog=client,
        config=table.config,
    )


def open_catalog(
    name: str,
    properties: Mapping[str, str],
    locations: LocationPolicy = EVERYWHERE,
    observe: ObserveRequest = ignore_request,
) -> CatalogGateway:
    """Open a catalog.

    Args:
        name: ``iceberg.catalog``.
        properties: ``iceberg.catalog.*`` without the prefix, placeholders resolved.
        locations: where its tables, its warehouse and its own file may lie.
        observe: see ``CatalogGateway``.

    Raises:
        ConfigError: a property is wrong, missing, names a Python module, or a place that
            connectors may not reach; ``library_missing``.
        RetriableError: ``catalog_unavailable``.
        CommitRefused: ``unauthorized``, ``forbidden``.
    """
    config = client_config(properties)
    check_catalog(config, access_policy())
    require_libraries(config)
    gateway = CatalogGateway(name, config, locations, observe)
    with _mapped((), opening_error if config.kind == "rest" else request_error):
        gateway._client()  # noqa: SLF001 - same module: fail now rather than in the first round
    return gateway


def _create_namespace(client: Catalog, namespace: Identifier) -> None:
    """Create a namespace; another process may create it at the same moment."""
    for _ in range(NAMESPACE_TRIES):
        try:
            client.create_namespace_if_not_exists(namespace)
        except IntegrityError:  # what a SQL catalog raises for the one who came second
            continue
        return


@contextlib.contextmanager
def _mapped(
    identifier: Sequence[str], to_error: Callable[[Exception], IcefloeError] = request_error
) -> Iterator[None]:
    try:
        yield
    except IcefloeError as error:
        raise error.at(table=".".join(identifier) or None) from error.__cause__
    except Exception as error:  # clients raise the exceptions of their transports
        raise to_error(error).at(table=".".join(identifier) or None) from error


class ClientPool:
    """Opens a catalog's clients when they are needed. Thread-safe.

    Args:
        name: the catalog's name.
        config: what the clients are opened with.
        locations: where the tables may lie.
    """

    def __init__(self, name: str, config: ClientConfig, locations: LocationPolicy) -> None:
        self._name = name
        self._config = config
        self._locations = locations
        self._is_per_thread = config.kind == "rest"
        self._local = threading.local()
        self._lock = threading.Lock()
        self._clients: list[tuple[threading.Thread, Catalog]] = []

    def get(self) -> Catalog:
        """Return the client of this thread."""
        if self._is_per_thread:
            client: Catalog | None = getattr(self._local, "client", None)
            if client is None:
                client = self._local.client = self._of_ended_thread() or self._opened()
            return client
        with self._lock:
            if not self._clients:
                self._clients.append((threading.current_thread(), self._open()))
            return self._clients[0][1]

    def close(self) -> None:
        """Close the clients of all threads; the pool must not be used again."""
        with self._lock:
            clients, self._clients = self._clients, []
        for _, client in clients:
            client.close()

    def _of_ended_thread(self) -> Catalog | None:
        """Return a client that no thread uses any more; it now belongs to this thread."""
        with self._lock:
            for place, (thread, client) in enumerate(self._clients):
                if not thread.is_alive():
                    self._clients[place] = threading.current_thread(), client
                    return client
        return None

    def _opened(self) -> Catalog:
        client = self._open()
        with self._lock:
            self._clients.append((threading.current_thread(), client))
        return client

    def _open(self) -> Catalog:
        config = self._config
        if config.kind != "rest":
            properties = config.properties
            if config.kind == "sql":
                properties = {**properties, "uri": database_uri(config, access_policy())}
            return open_metastore(self._name, config.kind, properties, self._locations)
        limits_s = (config.connect_timeout_ms / 1000, config.read_timeout_ms / 1000)
        return GuardedRest(self._name, *limits_s, config.properties)
