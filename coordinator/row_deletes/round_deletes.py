"""The deletes of a round, and the data files that they reach.

Rules of this file:
- Which rows of a file are deleted depends on the file and on the deletes of the round only. So an
  attempt on a newer state of the table may use what an earlier attempt found.
- The keys are read when the first file may have rows with them.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from connect.gateways.storage.object_store import storage_errors
from coordinator.row_deletes.deleted_keys import DeletedKeys
from coordinator.row_deletes.limits import NotResolved, ResolveBudget
from coordinator.row_deletes.parquet_rows import (
    KeyColumns,
    NamesOf,
    RowFilter,
    as_kind,
    open_parquet,
)
from coordinator.row_deletes.row_state import UNKNOWN, RowState, WithIds, without_ids

_READERS: Final = 8
EVERYWHERE: Hashable = "everywhere"
"""The reach of a delete that applies to all partitions."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file with keys.

    Attributes:
        path: of the file.
        records: number of keys.
        columns: of the keys.
        reach: partition that it applies to; ``EVERYWHERE`` for all of them.
        step: of the round.
    """

    path: str
    records: int
    columns: KeyColumns
    reach: Hashable
    step: int


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A data file whose rows may be deleted.

    Attributes:
        path: of the file.
        size_bytes: of the file.
        partition: reach of deletes for it.
        step: of its rows.
        names_of: finds its columns.
        constants: values of columns that the file may lack, by field id.
        may_have: whether a key of some columns can be in the file, by what is known without
            reading it.
        column_bytes: size of each column by field id, as far as it is known.
        state: what the table knows about its rows, for a copy.
        with_ids: adds the field ids to the schema of a file without any, for a copy.
    """

    path: str
    size_bytes: int
    partition: Hashable
    step: int
    names_of: NamesOf
    constants: Mapping[int, Any]
    may_have: Callable[[KeyColumns, DeletedKeys], bool]
    column_bytes: Mapping[int, int] = field(default_factory=dict)
    state: RowState = UNKNOWN
    with_ids: WithIds = without_ids

    def key_bytes(self, rows: RowFilter) -> int:
        """Return the size of the columns that a filter reads; of the file if it is not known."""
        sizes = [
            self.column_bytes.get(field_id)
            for field_id in {i for columns, _ in rows.keys for i in columns.field_ids}
        ]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else self.size_bytes


@dataclass(slots=True)
class RoundDeletes:
    """The deletes of one round; used by one thread, which reads key columns in others.

    Attributes:
        files: with the keys.
        open_input: opens a file by its path.
        delete_names_of: finds the columns of delete files.
        budget: limits.
    """

    files: Sequence[DeleteFile]
    open_input: Callable[[str], Any]
    delete_names_of: NamesOf
    budget: ResolveBudget
    _keys: dict[Hashable, list[tuple[KeyColumns, DeletedKeys]]] | None = None

    def rows_of(self, source: SourceFile) -> RowFilter:
        """Return which rows of a file are deleted; without keys where it certainly has none.

        Raises:
            NotResolved: a limit is reached. RetriableError: ``storage_unavailable``.
        """
        keys = self.keys()
        reaching = [
            (columns, each)
            for reach in (EVERYWHERE, source.partition)
            for columns, each in keys.get(reach, ())
            if each.last_step > source.step and source.may_have(columns, each)
        ]
        return RowFilter(reaching, source.step, source.names_of, source.constants)

    def each(
        self, sources: Sequence[SourceFile], work: Callable[[SourceFile, Any, RowFilter], T]
    ) -> list[T]:
        """Do some work on open files, several at a time.

        Args:
            sources: the files.
            work: takes a source, its open file and its filter.

        Raises:
            NotResolved, RetriableError: as ``rows_of``.
        """
        if not sources:
            return []

        def opened(source: SourceFile) -> T:
            self.budget.check_time()
            with self.opened(source.path) as file:
                return work(source, file, self.rows_of(source))

        with ThreadPoolExecutor(_READERS, thread_name_prefix="key-read") as readers:
            return list(readers.map(opened, sources))

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """Open a Parquet file."""
        with storage_errors(f"reading {path}"), self.open_input(path) as stream:
            file = open_parquet(stream)
            try:
                yield file
            finally:
                file.close()

    def keys(self) -> Mapping[Hashable, Sequence[tuple[KeyColumns, DeletedKeys]]]:
        """Return the keys with their columns, by the reach of their deletes.

        Raises:
            NotResolved, RetriableError: as ``rows_of``.
        """
        if self._keys is not None:
            return self._keys
        limits = self.budget.limits
        records = sum(file.records for file in self.files)
        if records > limits.keys_max:
            raise NotResolved(
                "keys", f"{records} keys are deleted, and {limits.keys_max} is the limit"
            )
        parts: dict[tuple[Hashable, KeyColumns], list[tuple[int, list[pa.Array]]]]
        parts = defaultdict(list)
        size = 0
        for file in self.files:
            self.budget.check_time()
            columns = self._read(file)
            size += sum(column.nbytes for column in columns)
            if size > limits.key_bytes_max:
                raise NotResolved(
                    "keys", f"the deleted keys have more than {limits.key_bytes_max} bytes"
                )
            parts[file.reach, file.columns].append((file.step, columns))
        self._keys = defaultdict(list)
        for (reach, key_columns), of_files in parts.items():
            self._keys[reach].append((key_columns, DeletedKeys(of_files)))
        return self._keys

    def _read(self, delete: DeleteFile) -> list[pa.Array]:
        with self.opened(delete.path) as file:
            names = self.delete_names_of(file.schema_arrow)
            key_names = [names.get(field_id) for field_id in delete.columns.field_ids]
            if None in key_names:
                raise NotResolved("key_columns", f"{delete.path} lacks a key column")
            rows = file.read(columns=key_names, use_threads=False)
        columns = []
        for field_id, name, kind in zip(
            delete.columns.field_ids, key_names, delete.columns.kinds, strict=True
        ):
            column = as_kind(_whole(rows.column(name)), kind)
            if field_id in delete.columns.empty_as_null:
                column = pc.if_else(pc.equal(column, ""), pa.scalar(None, kind), column)
            columns.append(column)
        return columns


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined
