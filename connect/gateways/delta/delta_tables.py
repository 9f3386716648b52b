"""Delta tables below one location: load, create, add columns, commit files.

Rules of this file:
- A commit is conditional on the version that was loaded. The library neither rebases nor repeats
  it: if another writer committed first, the caller loads the table and decides again.
- The library may send a request again. So even a conflict can follow a commit that succeeded:
  callers search the log for their transaction after any error.
- Only this module maps the library's exceptions. Their texts come from the store: where texts of
  other systems are hidden, they are not even the cause of the error.
- A table with a feature that appends must obey, and that this module does not obey, is refused.
- The library parses a location as a URL (``%2e%2e`` is ``..``), other clients as a path. A location
  or name for which that differs is refused: else a checked folder is not the one that is opened.

Source:
    Delta transaction log protocol; delta-rs 1.6 ``CommitBuilder``: with ``max_commit_retries`` 0
    it writes the version after the loaded one, on condition that it does not exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from connect.clock import SystemClock
from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.config.table_formats import DELTA
from connect.errors import (
    CommitConflict,
    CommitRefused,
    CommitStateUnknown,
    IcefloeError,
    RetriableError,
)
from connect.gateways.delta.delta_model import DeltaFile
from connect.gateways.delta.delta_schema import (
    added_fields,
    delta_fields,
    delta_schema_text,
    iceberg_schema,
    partition_columns,
    partition_spec,
    unsupported,
)
from connect.gateways.delta.delta_storage import storage_options
from connect.gateways.storage.folder_locations import FolderLocations
from connect.gateways.storage.object_store import own_credentials
from connect.redaction.foreign_text import are_hidden, shown_answer

Observe: TypeAlias = Callable[[str, str, int], None]
_FEATURES: Final = frozenset(
    {"appendOnly", "deletionVectors", "invariants", "timestampNtz", "v2Checkpoint"}
)
"""Writer features that an append obeys; ``iceberg_schema`` refuses columns with invariants."""
_RULES: Final = (
    ("delta.constraints.", "check constraints"),
    ("delta.columnMapping.mode", "column mapping"),
    ("delta.enableRowTracking", "row tracking"),
    ("delta.enableInCommitTimestamps", "in-commit timestamps"),
)
_HISTORY_MAX: Final = 1_000
_OFF: Final = frozenset({"none", "false", ""})
_TRANSACTION_RETENTION: Final = "delta.setTransactionRetentionDuration"
_MESSAGE_CHARACTERS_MAX: Final = 500
_CLOCK: Final = SystemClock()
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_REFUSED: Final = re.compile(
    r"\b40[13] (Unauthorized|Forbidden)|AccessDenied|lacked the necessary privileges|"
    r"InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|AuthorizationFailure|"
    r"[Pp]ermission denied|status: 40[13]"
)
_PANIC: Final = "PanicException"  # the class cannot be imported
_NO_RETRIES: Final = 0  # the library must not repeat a commit


@dataclass(frozen=True, slots=True)
class DeltaSnapshot:
    """One version of a Delta table.

    Attributes:
        name: ``namespace.table``.
        location: with a scheme.
        version: of the log.
        table_uuid: the table's id.
        schema: as Iceberg schema, see ``delta_schema``.
        spec: its partition columns.
        properties: the table's configuration.
        handle: the library's table at this version.
    """

    name: str
    location: str
    version: int
    table_uuid: uuid.UUID
    schema: Schema
    spec: PartitionSpec
    properties: Mapping[str, str]
    handle: DeltaTable
    observe: Observe

    @property
    def log_file(self) -> str:
        """The file of the log that made this version."""
        return f"{self.location}/_delta_log/{self.version:020}.json"

    @property
    def write_properties(self) -> Mapping[str, str]:
        """Properties that place data files: none."""
        return {}

    @property
    def partition_columns(self) -> list[str]:
        """Names of the partition columns."""
        return [part.name for part in self.spec.fields]

    def transaction(self, app_id: str) -> int | None:
        """Return the last version of a transaction identifier; None if it was never written."""
        with _mapped(self.name, "load", self.observe):
            version: int | None = self.handle.transaction_version(app_id)
        return version

    def append(
        self,
        files: Sequence[DeltaFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """Commit files as the version after this one; return that version.

        Args:
            files: to add.
            transactions: version by identifier.
            metadata: of the commit, JSON.
            now_ms: wall clock, for the identifiers' time of update.

        Raises:
            CommitConflict: the version exists, or the table changed. CommitStateUnknown: perhaps
                committed. CommitRefused: the store refuses access. After each of them the commit
                may be in the log.
        """
        properties = CommitProperties(
            custom_metadata=dict(metadata),
            max_commit_retries=_NO_RETRIES,
            app_transactions=[
                Transaction(app_id=app_id, version=version, last_updated=now_ms)
                for app_id, version in sorted(transactions.items())
            ],
        )
        actions: list[AddAction | RemoveAction] = [
            AddAction(
                path=file.path,
                size=file.size_bytes,
                partition_values=dict(file.partition_values),
                modification_time=file.modified_ms,
                data_change=True,
                stats=file.stats,
            )
            for file in files
        ]
        with _mapped(self.name, "commit", self.observe, commit_error):
            self.handle.create_write_transaction(
                actions,
                mode="append",
                schema=self.handle.schema(),
                partition_by=self.partition_columns,
                commit_properties=properties,
            )
        return self.version + 1

    def committed_version(self, key: str, value: str) -> int | None:
        """Return the newest version whose commit has a metadata entry; None if no kept one has."""
        with _mapped(self.name, "history", self.observe):
            for back, entry in enumerate(self.handle.history(_HISTORY_MAX)):
                if entry.get(key) == value:
                    return self.version - back
        return None


class DeltaTables:
    """The tables of one connector; safe to use from many threads.

    Args:
        properties: of the client, as ``client_config`` returns them.
        locations: where tables may lie.
        observe: called after each operation with its name, its outcome (``ok`` or the error's
            code) and its milliseconds.
    """

    table_format = DELTA

    def __init__(
        self,
        properties: Mapping[str, Any],
        locations: LocationPolicy = EVERYWHERE,
        observe: Observe = lambda *_: None,
    ) -> None:
        self.properties: Mapping[str, Any] = own_credentials(properties)
        self._locations = FolderLocations(DELTA, self.properties, locations)
        self._observe = observe

    def load(self, identifier: Sequence[str]) -> DeltaSnapshot:
        """Return the newest version of a table.

        The log is always read from its last checkpoint. An update of a loaded table would not
        notice that the folder was deleted and holds another table now.

        Raises:
            CommitRefused: ``table_missing``, ``delta_unsupported``, ``floor_may_expire``,
                ``forbidden``; as ``FolderLocations.of``.
            RetriableError: ``catalog_unavailable``.
        """
        name, location = ".".join(identifier), self._locations.of(identifier)
        with _mapped(name, "load", self._observe):
            options = storage_options(self.properties, location)
            handle = DeltaTable(location, storage_options=options)
            return _snapshot(name, location, handle, self._observe)

    def create(
        self,
        identifier: Sequence[str],
        schema: Schema,
        spec: PartitionSpec,
        properties: Mapping[str, str],
    ) -> None:
        """Create a table; a table that another writer created at the same time is no error.

        Raises:
            CommitRefused: ``delta_unsupported``; as ``load``.
            RetriableError: ``catalog_unavailable``; the table may exist.
        """
        name, location = ".".join(identifier), self._locations.of(identifier)
        columns = partition_columns(schema, spec)
        text = delta_schema_text(delta_fields(schema))
        with _mapped(name, "create", self._observe):
            try:
                DeltaTable.create(
                    location,
                    DeltaSchema.from_json(text),
                    mode="ignore",
                    partition_by=columns,
                    configuration=dict(properties),
                    storage_options=storage_options(self.properties, location),
                    commit_properties=CommitProperties(max_commit_retries=_NO_RETRIES),
                    raise_if_key_not_exists=False,
                )
            except CommitFailedError:
                self.load(identifier)

    def add_columns(self, snapshot: DeltaSnapshot, schema: Schema) -> None:
        """Add the columns that ``schema`` has in addition, as the version after the snapshot.

        Raises:
            CommitConflict, CommitStateUnknown, CommitRefused: as ``DeltaSnapshot.append``;
                ``delta_unsupported`` if more than columns would change.
        """
        fields = added_fields(snapshot.schema, schema)
        if not fields:
            return
        with _mapped(snapshot.name, "add_columns", self._observe, commit_error):
            snapshot.handle.alter.add_columns(
                DeltaSchema.from_json(delta_schema_text(fields)).fields,
                commit_properties=CommitProperties(max_commit_retries=_NO_RETRIES),
            )


def _snapshot(name: str, location: str, handle: DeltaTable, observe: Observe) -> DeltaSnapshot:
    metadata, protocol = handle.metadata(), handle.protocol()
    properties = dict(metadata.configuration)
    features = protocol.writer_features or ()
    if others := sorted(set(map(str, features)) - _FEATURES):
        raise unsupported(f"it has the feature {', '.join(others)}")
    for prefix, feature in _RULES:
        for key, value in properties.items():
            if key.startswith(prefix) and value.strip().lower() not in _OFF:
                raise unsupported(f"it has {feature} ({key})")
    if properties.get(_TRANSACTION_RETENTION):
        raise CommitRefused(
            f"property {_TRANSACTION_RETENTION} lets the table forget what was committed; unset "
            "the property",
            code="floor_may_expire",
        )
    schema = iceberg_schema(handle.schema().to_json())
    return DeltaSnapshot(
        name=name,
        location=location,
        version=handle.version(),
        table_uuid=_uuid(str(metadata.id)),
        schema=schema,
        spec=partition_spec(schema, metadata.partition_columns),
        properties=properties,
        handle=handle,
        observe=observe,
    )


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        return uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16])


def commit_error(error: BaseException) -> IcefloeError:
    """What an exception of a commit means; anything not known to be an answer is unknown."""
    message = _message(error)
    if isinstance(error, CommitFailedError):
        return CommitConflict(message)
    if _REFUSED.search(message):
        return CommitRefused(message, code="forbidden")
    return CommitStateUnknown(message)


def _read_error(error: BaseException) -> IcefloeError:
    message = _message(error)
    if isinstance(error, TableNotFoundError):
        return CommitRefused(
            "there is no Delta table; create it, or set iceberg.tables.auto-create-enabled",
            code="table_missing",
        )
    if _REFUSED.search(message):
        return CommitRefused(message, code="forbidden")
    return RetriableError(
        f"the log of the Delta table cannot be read: {message}; check the store and its keys",
        code="catalog_unavailable",
    )


def _message(error: BaseException) -> str:
    text = " ".join(_ESCAPES.sub("", str(error)).split())
    return shown_answer(f"{type(error).__name__}: {text}")[:_MESSAGE_CHARACTERS_MAX]


@contextlib.contextmanager
def _mapped(
    name: str,
    operation: str,
    observe: Observe,
    to_error: Callable[[BaseException], IcefloeError] = _read_error,
) -> Iterator[None]:
    """Map the errors of an operation, and report its duration."""
    started_ms, outcome = _CLOCK.monotonic_ms(), "ok"
    try:
        yield
    except IcefloeError as error:
        outcome = error.code
        raise error.at(table=name) from error.__cause__
    except BaseException as error:
        # the library raises Exception itself, and a panic of its code is no Exception
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
        mapped = to_error(error).at(table=name)
        outcome = mapped.code
        raise mapped from (None if are_hidden() else error)
    finally:
        observe(operation, outcome, _CLOCK.monotonic_ms() - started_ms)
