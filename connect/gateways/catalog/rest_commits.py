"""Commits of a REST catalog whose answers are not parsed.

Rules of this file:
- An answer to a commit of one table has all of its snapshots. It is received and searched for the
  new snapshot, not parsed.
- A table with a long history is committed as a transaction of this table alone, because that is
  answered without metadata. The answer proves nothing: a server may lose the change in a race and
  still answer with success. So the references of the table are loaded, and the commit counts only
  if they name the new snapshot. In every other case its outcome is unknown.
- A transaction that a server refuses, for another reason than a requirement, is sent as a commit of
  the table. The requirement for the branch makes a second application impossible.
- A request is sent once, and again only after a refused token.

Source:
    Iceberg REST specification: ``commitTransaction`` answers with 204; ``snapshots=refs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog
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
from requests import RequestException, Response

from connect.gateways.catalog.rest_requests import PreparedRequests, names, raise_for

_TRANSACTION = Endpoint(http_method=HttpMethod.POST, path="/v1/{prefix}/transactions/commit")
_ACCESS_DELEGATION = "X-Iceberg-Access-Delegation"
"""Asks for credentials of the store, which a load after a commit does not need."""
_TOKEN_EXPIRED = frozenset({401, 419})
_NOT_OFFERED = frozenset({400, 403, 404, 405, 406, 413, 422, 501})
"""Answers to a transaction that say nothing about the change: a commit of the table is sent."""
_COMMIT_ERRORS: Mapping[int, type[Exception]] = {
    409: CommitFailedException,
    500: CommitStateUnknownException,
    502: CommitStateUnknownException,
    504: CommitStateUnknownException,
}
"""Errors of PyIceberg's ``commit_table``."""
log = structlog.get_logger("coordinator")


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
    """The part of a REST catalog client that commits; for one thread.

    Attributes:
        history_bytes_min: a table whose log of snapshots has so many bytes has a long history. It
            has about 4,000 snapshots then, and 3 MB would be the answer to its commit.
    """

    history_bytes_min = 256 * 1024
    _prepared: PreparedRequests | None = None
    _sends_transactions = True
    _long_histories: set[UUID]

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
        is_long = table.metadata.table_uuid in self._long_histories
        if is_long and self._may_send_alone(table) and self._commit_as_transaction(change):
            return
        place = self._split_identifier_for_path(table.name())
        url = self.url(Endpoints.update_table, prefixed=True, **place)
        token = table.config.get(TOKEN)
        headers = {AUTHORIZATION_HEADER: f"{BEARER_PREFIX} {token}"} if token else None
        response = self._posted(url, change.request, headers)
        raise_for(response, _COMMIT_ERRORS)
        if not names(response, change.ids):
            raise CommitStateUnknownException("the catalog's answer is not the committed table")

    def _may_send_alone(self, table: Table) -> bool:
        """Whether the server lists transactions, and has not refused one of a single table."""
        is_offered = self._sends_transactions and _TRANSACTION in self._supported_endpoints
        return is_offered and TOKEN not in table.config  # it is for requests of the table

    def _commit_as_transaction(self, change: TableChange) -> bool:
        """Commit one table; return false if the server does not take it so.

        Raises:
            CommitStateUnknownException, Exception: as ``commit_unread``.
        """
        request = _transaction([change])
        response = self._posted(self.url("transactions/commit"), request)
        if response.status_code in _NOT_OFFERED:
            log.info(
                "the catalog refuses a transaction of one table; tables are committed one by one",
                status=response.status_code,
            )
            response.close()
            self._sends_transactions = False
            return False
        raise_for(response, _COMMIT_ERRORS)
        names(response, ())
        try:
            loaded = self._load_response(
                change.table.name(), with_history=False, headers={_ACCESS_DELEGATION: None}
            )
            loaded.raise_for_status()
            is_named = names(loaded, change.ids)
        except RequestException as error:
            raise CommitStateUnknownException(
                f"the table could not be read after a transaction: {type(error).__name__}"
            ) from None
        if not is_named:
            raise CommitStateUnknownException(
                "the catalog answered that it committed, but no branch or tag names the snapshot"
            )
        return True

    def _load_response(
        self,
        identifier: Identifier,
        *,
        with_history: bool,
        headers: Mapping[str, str | None] | None = None,
    ) -> Response:
        """Request a table, perhaps without snapshots that no branch and no tag names."""
        place = self._split_identifier_for_path(identifier)
        url = self.url(Endpoints.load_table, prefixed=True, **place)
        query = "" if with_history else "?snapshots=refs"
        return self._requests.send("GET", url + query, headers=headers)

    def _note_history(self, table_uuid: UUID, *, is_long: bool) -> None:
        """Note whether a table has a long history that its load left out."""
        if is_long:
            self._long_histories.add(table_uuid)
        else:
            self._long_histories.discard(table_uuid)

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
