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
- Which files a version added is read from its own file of the log: checkpoints do not say when.

Source:
    Delta transaction log protocol; delta-rs 1.6 ``CommitBuilder``: with ``max_commit_retries`` 0
    it writes the version after the loaded one, on condition that it does not exist.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyiceberg.io import FileIO
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
from connect.gateways.delta.delta_log_sizes import check_log
from connect.gateways.delta.delta_model import DeltaFile, LiveDeltaFile
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
from connect.gateways.storage.guarded_io import GuardedFileIO
from connect.gateways.storage.log_sizes import check_values, limited_content
from connect.gateways.storage.object_store import own_credentials
from connect.redaction.foreign_text import are_hidden, shown_answer
from control_schemas import bounded_json

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
_DELETION_VECTORS: Final = "deletionVectors"
_NO_CHANGES: Final = {
    "delta.appendOnly": "rows that are only added",
    "delta.enableChangeDataFeed": "a change data feed",
}
_PLAIN_IN_PATHS: Final = "!$&'()+,-./:;=@_~"
"""Characters, apart from letters and digits, that the library does not encode in paths."""
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
_VERSIONS_MAX: Final = 1_000


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
        observe: called after each operation.
        storage: properties that open its files; may have secrets.
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
    storage: Mapping[str, Any] = field(default_factory=dict, repr=False)

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

    @property
    def io(self) -> FileIO:
        """Opens the table's files."""
        return GuardedFileIO(dict(self.storage))

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
        return self.replace(files, (), transactions, metadata, now_ms)

    def replace(
        self,
        files: Sequence[DeltaFile],
        removed: Sequence[DeltaFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """As ``append``, and remove files in the same version."""
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
        actions += [
            RemoveAction(
                path=file.path,
                data_change=True,
                deletion_timestamp=now_ms,
                size=file.size_bytes,
                partition_values=dict(file.partition_values),
            )
            for file in removed
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

    def check_changes(self) -> None:
        """Raise ``CommitRefused``, ``delta_unsupported``, where no file may be removed."""
        features = set(map(str, self.handle.protocol().writer_features or ()))
        if _DELETION_VECTORS in features:
            raise unsupported(
                "rows are replaced by copy-on-write, and it has deletion vectors; purge them "
                "(REORG TABLE ... APPLY (PURGE)) and drop the feature deletionVectors"
            )
        for key, why in _NO_CHANGES.items():
            if self.properties.get(key, "").strip().lower() not in _OFF:
                raise unsupported(f"rows cannot be replaced, because it has {why} ({key})")

    def live_files(self, columns: Iterable[str]) -> list[LiveDeltaFile]:
        """Return the data files, with statistics of some columns."""
        with _mapped(self.name, "files", self.observe):
            actions = pa.table(self.handle.get_add_actions(flatten=True))
        statistics = [
            (name, f"min.{name}", f"max.{name}", f"null_count.{name}")
            for name in columns
            if name not in self.partition_columns
        ]
        partitions = [(name, f"partition.{name}") for name in self.partition_columns]
        needed = {each for names in (*statistics, *partitions) for each in names[1:]}
        plain = {
            name: internal_form(actions[name]).to_pylist() if name in actions.column_names else None
            for name in ("path", "size_bytes", *needed)
        }
        return [_live_file(at, plain, statistics, partitions) for at in range(actions.num_rows)]

    def files_since(self, since_ms: int) -> frozenset[str] | None:
        """Return the files that versions since then added or removed, as ``files_since``."""
        with _mapped(self.name, "history", self.observe):
            return files_since(self.io, f"{self.location}/_delta_log", self.version, since_ms)

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
                ``forbidden``, ``metadata_too_large``; as ``FolderLocations.of``.
            RetriableError: ``catalog_unavailable``.
        """
        name, location = ".".join(identifier), self._locations.of(identifier)
        with _mapped(name, "load", self._observe):
            options = storage_options(self.properties, location)
            check_log(self.properties, location)
            handle = DeltaTable(location, storage_options=options)
            return _snapshot(name, location, handle, self._observe, self.properties)

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


def _live_file(
    at: int,
    plain: Mapping[str, Sequence[Any] | None],
    statistics: Sequence[tuple[str, str, str, str]],
    partitions: Sequence[tuple[str, str]],
) -> LiveDeltaFile:
    def value(name: str) -> Any:
        column = plain[name]
        return None if column is None else column[at]

    bounds, has_nulls = {}, {}
    for name, low_name, high_name, nulls_name in statistics:
        low, high, nulls = value(low_name), value(high_name), value(nulls_name)
        if low is not None and high is not None:
            bounds[name] = low, high
        if nulls is not None:
            has_nulls[name] = nulls > 0
    partition = {name: value(in_actions) for name, in_actions in partitions}
    return LiveDeltaFile(_path_of(value("path")), value("size_bytes"), partition, bounds, has_nulls)


def _path_of(logged: str) -> str:
    """Return the path that the library writes as it is in the log.

    The library takes plain paths and encodes them. A file is removed only if its path in the log is
    the same text.

    Raises:
        CommitRefused: ``delta_unsupported``: it would be another text, or is no path in the table.
    """
    path = unquote(logged)
    is_inside = not path.startswith("/") and "://" not in path and ".." not in path.split("/")
    if not is_inside or quote(path, safe=_PLAIN_IN_PATHS) != logged:
        raise unsupported(f"the path of its file {logged} cannot be removed; run OPTIMIZE")
    return path


def internal_form(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return dates and timestamps as Iceberg's numbers; other values as they are."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column


def _snapshot(
    name: str,
    location: str,
    handle: DeltaTable,
    observe: Observe,
    storage: Mapping[str, Any],
) -> DeltaSnapshot:
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
        storage=storage,
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


def files_since(io: FileIO, log: str, version: int, since_ms: int) -> frozenset[str] | None:
    """Return the files that versions since then added or removed.

    Args:
        io: opens the files of the log.
        log: its folder.
        version: the newest one.
        since_ms: milliseconds since 1970.

    Returns:
        Paths below the table's location; None where the log does not reach so far back.

    Raises:
        CommitRefused: ``metadata_too_large``. OSError, ValueError: the log cannot be read.
    """
    files: set[str] = set()
    for number in range(version, max(version - _VERSIONS_MAX, -1), -1):
        try:
            with io.new_input(f"{log}/{number:020}.json").open() as stream:
                content = limited_content(stream.read)
        except FileNotFoundError:
            return None
        check_values(content)
        actions = [bounded_json.loads(line) for line in content.decode().splitlines() if line]
        made_ms = max((_time(each) for each in actions), default=None)
        if made_ms and made_ms < since_ms:
            return frozenset(files)
        for action in actions:
            for kind in ("add", "remove"):
                if isinstance(path := action.get(kind, {}).get("path"), str):
                    files.add(unquote(path))
    return frozenset(files) if version < _VERSIONS_MAX else None


def _time(action: Any) -> int:
    at = action.get("commitInfo", {}).get("timestamp")
    return at if isinstance(at, int) else 0
