"""Commits of a REST catalog whose answers are not parsed.

Rules of this file:
- An answer to a commit of one table has all of its snapshots. It is received and searched for the
  new snapshot, not parsed.
- A request is sent once, and again only after a refused token.

Source:
    Iceberg REST specification: ``commitTransaction``; ``snapshots=refs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field
from pyiceberg.catalog import TOKEN
from pyiceberg.catalog.rest import (
    AUTHORIZATION_HEADER,
    BEARER_PREFIX,
    DEFAULT_ENDPOINTS,
    VIEW_ENDPOINTS,
    Endpoint,
    Endpoints,
    HttpMethod,
    RestCatalog,
)
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
)
from pyiceberg.table import CommitTableRequest, Namespace, Table, TableIdentifier
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import UTF8, IcebergBaseModel, Identifier
from requests import Response

from connect.gateways.catalog.rest_requests import PreparedRequests, names, raise_for

_TRANSACTION = Endpoint(http_method=HttpMethod.POST, path="/v1/{prefix}/transactions/commit")
_TOKEN_EXPIRED = frozenset({401, 419})
_COMMIT_ERRORS: Mapping[int, type[Exception]] = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}
"""Errors of PyIceberg's ``commit_table``."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a transaction over several tables."""

    table: Table
    requirements: Sequence[TableRequirement]
    updates: Sequence[TableUpdate]

    @property
    def request(self) -> CommitTableRequest:
        """What is sent of it."""
        *namespace, name = self.table.name()
        return CommitTableRequest(
            identifier=TableIdentifier(namespace=Namespace(namespace), name=name),
            requirements=tuple(self.requirements),
            updates=tuple(self.updates),
        )

    @property
    def ids(self) -> list[bytes]:
        """What the metadata of the committed table contains: its id, and those of new snapshots."""
        added = [u.snapshot.snapshot_id for u in self.updates if isinstance(u, AddSnapshotUpdate)]
        return [str(each).encode() for each in (*added, self.table.metadata.table_uuid)]


class _CommitTransactionRequest(IcebergBaseModel):
    table_changes: tuple[CommitTableRequest, ...] = Field(alias="table-changes")


class RestCommits(RestCatalog):
    """The part of a REST catalog client that commits; for one thread."""

    _prepared: PreparedRequests | None = None

    @property
    def _requests(self) -> PreparedRequests:
        if self._prepared is None:
            self._prepared = PreparedRequests(self._session)
        return self._prepared

    @property
    def has_transactions(self) -> bool:
        """Whether the server says that it commits to several tables at once.

        One that lists no endpoints has, by the specification, this one too.
        """
        listed = self._supported_endpoints
        return _TRANSACTION in listed or listed - VIEW_ENDPOINTS == DEFAULT_ENDPOINTS

    def commit_unread(
        self, table: Table, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> None:
        """Commit as ``commit_table``, without parsing an answer that lists all snapshots.

        Raises:
            CommitStateUnknownException: it is not certain that the table has the new snapshot.
            Exception: as ``commit_table``.
        """
        change = TableChange(table, requirements, updates)
        place = self._split_identifier_for_path(table.name())
        url = self.url(Endpoints.update_table, prefixed=True, **place)
        token = table.config.get(TOKEN)
        headers = {AUTHORIZATION_HEADER: f"{BEARER_PREFIX} {token}"} if token else None
        response = self._posted(url, change.request, headers)
        raise_for(response, _COMMIT_ERRORS)
        if not names(response, change.ids):
            raise CommitStateUnknownException("the catalog's answer is not the committed table")

    def _load_response(self, identifier: Identifier, *, with_history: bool) -> Response:
        """Request a table, perhaps without snapshots that no branch and no tag names."""
        place = self._split_identifier_for_path(identifier)
        url = self.url(Endpoints.load_table, prefixed=True, **place)
        query = "" if with_history else "?snapshots=refs"
        return self._requests.send("GET", url + query)

    def _posted(
        self, url: str, request: IcebergBaseModel, headers: Mapping[str, str] | None = None
    ) -> Response:
        body = request.model_dump_json().encode(UTF8)
        response = self._requests.send("POST", url, body=body, headers=headers)
        if response.status_code in _TOKEN_EXPIRED:  # nothing was changed
            response.close()
            self._refresh_token()
            response = self._requests.send("POST", url, body=body, headers=headers)
        return response

    def commit_transaction(self, changes: Iterable[TableChange]) -> None:
        """Send several tables' changes in one request, once.

        Raises:
            Exception: as ``commit_table``; after a refused token the next request has a new one.
        """
        request = _transaction(changes)
        response = self._session.post(
            self.url("transactions/commit"), data=request.model_dump_json().encode(UTF8)
        )
        if response.status_code in _TOKEN_EXPIRED:
            self._refresh_token()
        raise_for(response, {404: NoSuchTableError, 409: CommitFailedException})


def _transaction(changes: Iterable[TableChange]) -> _CommitTransactionRequest:
    parts = {"table-changes": tuple(change.request for change in changes)}
    return _CommitTransactionRequest.model_validate(parts)
