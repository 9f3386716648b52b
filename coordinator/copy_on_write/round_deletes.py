"""The deletes of a round, applied to data files by writing them again.

Rules of this file:
- A copy depends on its source and on the deletes of the round only. So an attempt on a newer state
  of the table may use the copies of an earlier attempt, for sources that the table still has.
- A source is copied to at most one file. A copy has the partition of its source.
- The keys are read when the first file may have rows with them.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connect.gateways.storage.object_store import storage_errors
from coordinator.copy_on_write.deleted_keys import DeletedKeys
from coordinator.copy_on_write.limits import (
    KEY_BYTES_MAX,
    KEYS_MAX,
    NotRewritten,
    RewriteBudget,
)
from coordinator.copy_on_write.parquet_rows import (
    KeyColumns,
    NamesOf,
    RowFilter,
    as_kind,
    copy_rows,
    has_deleted_rows,
    open_parquet,
)

_READERS: Final = 4
EVERYWHERE: Hashable = "everywhere"
"""The reach of a delete that applies to all partitions."""


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
    """

    path: str
    size_bytes: int
    partition: Hashable
    step: int
    names_of: NamesOf
    constants: Mapping[int, Any]
    may_have: Callable[[KeyColumns, DeletedKeys], bool]


@dataclass(frozen=True, slots=True)
class FileCopy:
    """What replaces a source.

    Attributes:
        path: of the copy; None if no row remains.
        size_bytes: of the copy.
        footer: Parquet's, of the copy.
        schema: Arrow's, of the copy.
    """

    path: str | None = None
    size_bytes: int = 0
    footer: Any = None
    schema: pa.Schema | None = None


@dataclass(slots=True)
class RoundDeletes:
    """The deletes of one round; used by one thread, which reads key columns in others.

    Attributes:
        files: with the keys.
        open_input: opens a file by its path.
        create: opens a copy of a source; returns its path and a stream.
        delete_names_of: finds the columns of delete files.
        options: of the Parquet writer.
        budget: limits.
        copies: what replaces each source, by its path.
        bytes_read: size of the sources that were copied.
    """

    files: Sequence[DeleteFile]
    open_input: Callable[[str], Any]
    create: Callable[[SourceFile], tuple[str, Any]]
    delete_names_of: NamesOf
    options: Mapping[str, Any]
    budget: RewriteBudget
    copies: dict[str, FileCopy] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    bytes_read: int = 0
    _keys: dict[Hashable, list[tuple[KeyColumns, DeletedKeys]]] | None = None

    def affected(self, sources: Sequence[SourceFile]) -> list[SourceFile]:
        """Return the sources with rows that the round deletes.

        Raises:
            NotRewritten: a limit is reached. RetriableError: ``storage_unavailable``.
        """
        self.budget.check_time()
        candidates = [s for s in sources if s.path in self.copies or self._filter(s).keys]
        if not candidates:
            return []
        with ThreadPoolExecutor(_READERS, thread_name_prefix="key-read") as readers:
            flags = list(readers.map(self._has_deleted, candidates))
        out = [source for source, is_affected in zip(candidates, flags, strict=True) if is_affected]
        self.budget.check_bytes(sum(source.size_bytes for source in out))
        return out

    def copy(self, source: SourceFile) -> FileCopy:
        """Return what replaces a source; written once.

        Raises:
            NotRewritten, RetriableError: as ``affected``.
        """
        if source.path not in self.copies:
            with self.budget.one_file():
                self.copies[source.path] = self._copied(source)
            self.bytes_read += source.size_bytes
        return self.copies[source.path]

    def _has_deleted(self, source: SourceFile) -> bool:
        if source.path in self.copies:
            return True
        self.budget.check_time()
        with self._opened(source.path) as file:
            return has_deleted_rows(file, self._filter(source), self.budget.check_time)

    def _copied(self, source: SourceFile) -> FileCopy:
        path = ""

        def create() -> Any:
            nonlocal path
            path, stream = self.create(source)
            self.created.append(path)
            return stream

        with self._opened(source.path) as file:
            rows = self._filter(source)
            copied = copy_rows(file, rows, create, self.options, self.budget.check_time)
            if copied is None:
                return FileCopy()
            footer, size = copied
            return FileCopy(path, size, footer, file.schema_arrow)

    def _filter(self, source: SourceFile) -> RowFilter:
        keys = self._loaded()
        reaching = [
            (columns, each)
            for reach in (EVERYWHERE, source.partition)
            for columns, each in keys.get(reach, ())
            if each.last_step > source.step and source.may_have(columns, each)
        ]
        return RowFilter(reaching, source.step, source.names_of, source.constants)

    def _loaded(self) -> dict[Hashable, list[tuple[KeyColumns, DeletedKeys]]]:
        if self._keys is not None:
            return self._keys
        records = sum(file.records for file in self.files)
        if records > KEYS_MAX:
            raise NotRewritten("keys", f"{records} keys are deleted, and {KEYS_MAX} is the limit")
        parts: dict[tuple[Hashable, KeyColumns], list[tuple[int, list[pa.Array]]]]
        parts = defaultdict(list)
        size = 0
        for file in self.files:
            self.budget.check_time()
            columns = self._read(file)
            size += sum(column.nbytes for column in columns)
            if size > KEY_BYTES_MAX:
                raise NotRewritten("keys", f"the deleted keys have more than {KEY_BYTES_MAX} bytes")
            parts[file.reach, file.columns].append((file.step, columns))
        self._keys = defaultdict(list)
        for (reach, key_columns), of_files in parts.items():
            self._keys[reach].append((key_columns, DeletedKeys(of_files)))
        return self._keys

    def _read(self, delete: DeleteFile) -> list[pa.Array]:
        with self._opened(delete.path) as file:
            names = self.delete_names_of(file.schema_arrow)
            key_names = [names.get(field_id) for field_id in delete.columns.field_ids]
            if None in key_names:
                raise NotRewritten("key_columns", f"{delete.path} lacks a key column")
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

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        with storage_errors(f"rewriting {path}"), self.open_input(path) as stream:
            file = open_parquet(stream)
            try:
                yield file
            finally:
                file.close()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined
