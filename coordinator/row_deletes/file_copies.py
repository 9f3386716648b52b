"""Removes the rows that a round deletes by writing their files again: copy-on-write.

Rules of this file:
- A copy depends on its source, on what the table knows about its rows (``RowState``) and on the
  deletes of the round only. So an attempt on a newer state of the table may use the copies of an
  earlier attempt, for sources that the table still has with the same state.
- A source is copied to at most one file. A copy has the partition of its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from coordinator.row_deletes.parquet_rows import RowFilter, copy_rows, has_deleted_rows
from coordinator.row_deletes.round_deletes import RoundDeletes, SourceFile
from coordinator.row_deletes.row_state import RowState


@dataclass(frozen=True, slots=True)
class FileCopy:
    """What replaces a source.

    Attributes:
        state: of the rows of the source.
        path: of the copy; None if no row remains.
        size_bytes: of the copy.
        footer: Parquet's, of the copy.
        schema: Arrow's, of the copy.
        variants: paths of the variants in the copy.
    """

    state: RowState
    path: str | None = None
    size_bytes: int = 0
    footer: Any = None
    schema: pa.Schema | None = None
    variants: frozenset[tuple[str, ...]] = frozenset()


@dataclass(slots=True)
class FileCopies:
    """The copies of one round; used by one thread.

    Attributes:
        deletes: of the round.
        create: opens a copy of a source; returns its path and a stream.
        options: of the Parquet writer.
        created: paths of all copies.
        copies: what replaces each source, by its path.
        bytes_read: size of the sources that were copied.
    """

    deletes: RoundDeletes
    create: Callable[[SourceFile], tuple[str, Any]]
    options: Mapping[str, Any]
    created: list[str] = field(default_factory=list)
    copies: dict[str, FileCopy] = field(default_factory=dict)
    bytes_read: int = 0
    _has_deleted: dict[str, bool] = field(default_factory=dict)

    def of(self, sources: Sequence[SourceFile]) -> dict[str, FileCopy]:
        """Return what replaces the sources with rows that the round deletes, by their path.

        Raises:
            NotResolved: a limit is reached. RetriableError: ``storage_unavailable``.
        """
        return self.made_of(self.affected(sources))

    def made_of(self, affected: Sequence[SourceFile]) -> dict[str, FileCopy]:
        """Return what replaces sources that have deleted rows, by their path.

        Raises:
            NotResolved, RetriableError: as ``of``.
        """
        self.deletes.budget.check_bytes(sum(source.size_bytes for source in affected))
        return {source.path: self._copy(source) for source in affected}

    def affected(self, sources: Sequence[SourceFile]) -> list[SourceFile]:
        """Return the sources with rows that the round deletes.

        Raises:
            NotResolved, RetriableError: as ``of``.
        """
        self.deletes.budget.check_time()
        check = self.deletes.budget.check_time

        def search(source: SourceFile, file: Any, rows: RowFilter) -> None:
            self._has_deleted[source.path] = has_deleted_rows(file, rows, check)

        known = self._has_deleted
        read = [s for s in sources if s.path not in known and self.deletes.rows_of(s).keys]
        self.deletes.each(read, search)
        return [s for s in sources if known.get(s.path)]

    def _copy(self, source: SourceFile) -> FileCopy:
        copy = self.copies.get(source.path)
        if copy is None or copy.state != source.state:
            with self.deletes.budget.one_file():
                copy = self.copies[source.path] = self._copied(source)
            self.bytes_read += source.size_bytes
        return copy

    def _copied(self, source: SourceFile) -> FileCopy:
        path = ""

        def create() -> Any:
            nonlocal path
            path, stream = self.create(source)
            self.created.append(path)
            return stream

        with self.deletes.opened(source.path) as file:
            rows = self.deletes.rows_of(source)
            check = self.deletes.budget.check_time
            copied = copy_rows(
                file,
                rows,
                create,
                self.options,
                check,
                state=source.state,
                with_ids=source.with_ids,
            )
            return FileCopy(source.state, *((path, *copied) if copied else ()))
