"""Row-level changes of one Spark task: the newest record of a key replaces the others.

Rules of this file:
- The changes of a task are written in steps. In a step only the newest record of a key counts. The
  deletes of a step apply to rows of earlier steps, never to its own. All files of a step have one
  place in the order, and no file continues in the next step.
- A step ends with the task, or when the rows kept for it exceed ``changes_bytes_max``.
- Rows of records without message key replace no row. Later changes replace them as other rows.
- The newest record of a key is the one with the highest rank; of equal ranks, the last in the order
  of its Spark task. A source partition is not split, so its changes keep their order.
- A key may be in two source partitions, and so in two Spark tasks. These report the hashes of their
  keys. The driver repeats such a batch in one Spark task.

Source:
    Iceberg specification, "Equality Delete Files" and "Sequence numbers".
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from connect.config.connector import ConnectorConfig
from connect.records.row_operations import (
    UNKNOWN_OPERATION,
    ChangeRules,
    Keyless,
    Operation,
    message_key_names,
)
from control_schemas.events import ContentFile, RowCounts
from worker.batch.blocks import Block, one_chunk
from worker.batch.descriptors import file_rows, keys_row, rows_row, unavailable_row
from worker.batch.pipeline_spec import PipelineLimits
from worker.write.change_order import Hashes, key_hashes
from worker.write.parquet_writer import Writers
from worker.write.table_writer import FileNames, TableWriter, by_position
from worker.write.unavailable_rows import unavailable_rows

Descriptor = tuple[str, bytes]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Marks:
    """The operations of rows, and their order.

    Attributes:
        operations: an ``Operation`` per row.
        orders: place of the row's record among all records of the Spark task.
        ranks: rank of the row's record among those of all partitions, see ``ChangeOrder``.
    """

    operations: npt.NDArray[np.int64]
    orders: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]

    def of(self, rows: Positions | Mask | slice) -> Marks:
        """Return the marks of some rows."""
        return Marks(self.operations[rows], self.orders[rows], self.ranks[rows])


class ColumnOperations:
    """Finds the operations of decoded rows; applies ``ChangeRules`` once per distinct value.

    Args:
        config: the connector's.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        self._rules = ChangeRules(config)
        self.path = self._rules.path

    def of(self, table: pa.Table) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Return an ``Operation`` per decoded row, and a mask of ambiguous rows."""
        if not self.path:
            plain = int(self._rules.meaning(None))
            return np.full(table.num_rows, plain, np.int64), None
        column = one_chunk(table.column(self.path[0]))
        for name in self.path[1:]:
            if not pa.types.is_struct(column.type):
                return self._only_nulls(column)
            column = pc.struct_field(column, [column.type.get_field_index(name)])
        if not (pa.types.is_string(column.type) or pa.types.is_boolean(column.type)):
            return self._only_nulls(column)
        encoded = column.dictionary_encode(null_encoding="encode")
        meanings = [self._rules.known_meaning(v) for v in encoded.dictionary.to_pylist()]
        codes: Any = encoded.indices.to_numpy(zero_copy_only=False)
        operations = np.array(meanings, np.int64)[codes]
        unknown: Mask = operations == UNKNOWN_OPERATION
        return operations, unknown if unknown.any() else None

    def _only_nulls(self, column: pa.Array) -> tuple[npt.NDArray[np.int64], Mask | None]:
        """Return no operations: only the record path knows the text of these values."""
        ambiguous: Mask = column.is_valid().to_numpy(zero_copy_only=False)
        return np.full(len(column), int(self._rules.meaning(None)), np.int64), ambiguous


@dataclass(slots=True)
class TableChanges:
    """The changes of one table since the last step.

    Args:
        table: writes the rows.
        file_names: names for delete files.
        upsert: whether plain inserts replace rows, too.
        reports_keys: whether the hashes of the changed keys are kept.

    Attributes:
        unavailable: by column, values that their source did not send; a placeholder was written.
    """

    table: TableWriter
    file_names: FileNames
    upsert: bool
    reports_keys: bool = False
    unavailable: Counter[str] = field(default_factory=Counter)
    _hashes: list[Hashes] = field(default_factory=list)
    _kept: list[pa.Table] = field(default_factory=list)
    _marks: list[Marks] = field(default_factory=list)
    _key_ids: tuple[int, ...] = ()
    _deletes: TableWriter | None = None

    def __post_init__(self) -> None:
        plan = self.table.plan.changes
        assert plan is not None, "the driver plans changes for every table of the connector"
        if plan.key_ids:
            self._use(plan.key_ids)

    @property
    def keyless(self) -> Keyless:
        """Return what happens to records without message key."""
        assert self.table.plan.changes is not None
        return self.table.plan.changes.keyless

    @property
    def has_key(self) -> bool:
        """Return whether the key columns are known."""
        return bool(self._key_ids)

    @property
    def key_places(self) -> tuple[int, ...]:
        """Return the positions of the key columns among the table's columns."""
        fields = self.table.schema.fields
        return tuple(i for i, f in enumerate(fields) if f.field_id in self._key_ids)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the names of the key columns; empty while they are not known."""
        return tuple(f.name for f in self.table.schema.fields if f.field_id in self._key_ids)

    @property
    def key_schema(self) -> Schema:
        """Return the schema of the key columns."""
        assert self._deletes is not None
        return self._deletes.schema

    def learn(self, message_key: Any) -> None:
        """Take the fields of a message key as key columns, where no configuration names them.

        Raises:
            RecordError: ``no_key``.
        """
        if not self._key_ids:
            names = message_key_names(message_key, self.table.schema)
            self._use(tuple(f.field_id for f in self.table.schema.fields if f.name in names))

    @property
    def key_ids(self) -> tuple[int, ...]:
        """Return the field ids of the key columns; empty while they are not known."""
        return self._key_ids

    def use_key(self, key_ids: tuple[int, ...]) -> None:
        """Take key columns that another Spark task has learnt; none if its rows have no key."""
        if key_ids and not self._key_ids:
            self._use(key_ids)

    def add(self, rows: pa.Table, marks: Marks) -> None:
        """Keep rows; of deletes only the key columns count."""
        self._kept.append(rows)
        self._marks.append(marks)

    def forget(self) -> None:
        """Drop the rows added since the last step."""
        self._kept, self._marks = [], []

    def settle(self, writers: Writers) -> RowCounts:
        """Write the changes that the kept rows result in, and count them."""
        if not self._kept:
            return RowCounts()
        rows = pa.concat_tables(self._kept)
        operations = np.concatenate([m.operations for m in self._marks])
        by_rank = _by_rank(self._marks)
        self.forget()
        appended = operations == Operation.APPEND
        place = np.empty(len(by_rank), np.int64)
        place[by_rank] = np.arange(len(by_rank))
        newest, is_change = self._newest(rows, operations, by_rank, place)
        replaced = newest[is_change | self.upsert]
        if appended.any():
            newest = np.append(newest, self._appended(rows, operations, place))
        remaining = np.sort(newest[operations[newest] != Operation.DELETE])
        if len(replaced):
            assert self._deletes is not None
            keys = rows.select(list(self.key_places)).take(pa.array(np.sort(replaced)))
            writers.add(self._deletes, by_position(keys))
        if len(remaining):
            is_all = len(remaining) == rows.num_rows
            written = rows if is_all else rows.take(pa.array(remaining))
            self._count_unavailable(written)
            writers.add(self.table, written)
        counts = np.zeros(len(operations), np.bool_)
        counts[replaced] = counts[remaining] = True
        superseded = len(operations) - int(np.count_nonzero(counts))
        return RowCounts(len(operations), superseded, len(operations) - superseded - len(remaining))

    def _count_unavailable(self, rows: pa.Table) -> None:
        for column, schema_field in zip(rows.columns, self.table.schema.fields, strict=True):
            lacking = unavailable_rows(one_chunk(column))
            if lacking is not None:
                self.unavailable[schema_field.name] += int(np.count_nonzero(lacking))

    def _newest(
        self, rows: pa.Table, operations: Positions, by_rank: Positions, place: Positions
    ) -> tuple[Positions, Mask]:
        """Return the newest record of each key, and whether one of the key is no insert."""
        has_key = operations != Operation.APPEND
        if not has_key.any():
            return by_rank[:0], has_key[:0]
        columns = self._keys(rows)
        names = list(columns)
        columns["place"] = pa.array(place)
        columns["change"] = pa.array((operations != Operation.INSERT).astype(np.int8))
        keyed = pa.table(columns)
        if not has_key.all():
            keyed = keyed.filter(pa.array(has_key))
        grouped = keyed.group_by(names, use_threads=False).aggregate(
            [("place", "max"), ("change", "max")]
        )
        if self.reports_keys:
            self._hashes.append(key_hashes([one_chunk(grouped[name]) for name in names]))
        newest = by_rank[grouped["place_max"].to_numpy()]
        return newest, grouped["change_max"].to_numpy() > 0

    def _appended(self, rows: pa.Table, operations: Positions, place: Positions) -> Positions:
        """Return the rows without message key that no later change of the step replaces."""
        appended = operations == Operation.APPEND
        if appended.all():
            return np.arange(len(appended))
        replaces = ~appended & ((operations != Operation.INSERT) | self.upsert)
        columns = self._keys(rows)
        names = list(columns)
        columns["change"] = pa.array(np.where(replaces, place, -1))
        columns["row"] = pa.array(np.arange(len(place)))
        grouped = (
            pa.table(columns)
            .group_by(names, use_threads=False)
            .aggregate([("change", "max"), ("row", "list")])
        )
        of_keys = one_chunk(grouped["row_list"])
        last = np.empty(len(place), np.int64)
        last[of_keys.flatten().to_numpy()] = np.repeat(
            grouped["change_max"].to_numpy(), pc.list_value_length(of_keys).to_numpy()
        )
        return np.flatnonzero(appended & (place > last))

    def _keys(self, rows: pa.Table) -> dict[str, pa.Array]:
        keys = [_comparable(one_chunk(rows.column(i))) for i in self.key_places]
        return {f"key{i}": column for i, column in enumerate(keys)}

    def changed_keys(self) -> Hashes:
        """Return the hashes of all changed keys, sorted and distinct."""
        if not self._hashes:
            return np.empty(0, np.uint64)
        hashes = np.sort(np.concatenate(self._hashes))  # np.unique takes ten times as long
        return hashes[np.concatenate(([True], hashes[1:] != hashes[:-1]))]

    def _use(self, key_ids: tuple[int, ...]) -> None:
        self._key_ids = key_ids
        plan = self.table.plan
        assert plan.changes is not None
        own = dataclasses.replace(
            plan,
            schema_json=_key_schema(plan.schema_json, key_ids),
            spec_json=plan.changes.delete_spec_json,
            sort_json=None,  # the order may have columns that are no keys
        )
        self._deletes = TableWriter(own, self.file_names, equality_ids=key_ids)


def _by_rank(marks: Sequence[Marks]) -> Positions:
    """Return the positions of all rows, from the oldest to the newest."""
    ordered = np.argsort(np.concatenate([m.orders for m in marks]), kind="stable")
    ranks = np.concatenate([m.ranks for m in marks])[ordered]
    if (ranks[1:] >= ranks[:-1]).all():
        return ordered
    return ordered[np.argsort(ranks, kind="stable")]


@lru_cache(maxsize=1024)
def _key_schema(schema_json: str, key_ids: tuple[int, ...]) -> str:
    """Return the schema of the key columns, as JSON; many tables share one."""
    schema = Schema.model_validate_json(schema_json)
    keys = (f for f in schema.fields if f.field_id in key_ids)
    return Schema(*keys, schema_id=schema.schema_id).model_dump_json()


class RowOutput(Protocol):
    """Takes the rows of connectors whose records only add rows; see ``Appends``."""

    def add(
        self,
        table: TableWriter,
        rows: pa.Table,
        marks: Marks | None = None,
        size: int | None = None,
    ) -> None:
        """Take rows, whose columns are in the order of the table's."""
        ...

    def pin(self, block_bytes: int) -> None:
        """Account for a block that added rows were cut from."""
        ...

    def end_block(self, block: Block, first: int) -> None:
        """Note that a block was taken; ``first`` is the place of its first record."""
        ...

    def finish(self) -> Iterator[Descriptor]:
        """End all output; yield its descriptors."""
        ...

    def abort(self) -> None:
        """Discard what was taken."""
        ...


class RowWriters(Protocol):
    """Writes rows of tables to files; see ``Writers``."""

    def add(self, table: TableWriter, rows: pa.Table, size: int | None = None) -> None:
        """Take rows, whose columns are in the order of the table's."""
        ...

    def pin(self, block_bytes: int) -> None:
        """Account for a block that added rows were cut from."""
        ...

    def finish(self) -> Iterator[tuple[TableWriter, ContentFile]]:
        """Write waiting rows and end all files; yield each file's table and description."""
        ...

    def abort(self) -> None:
        """Delete every file of this task."""
        ...


class Appends:
    """Writes rows of connectors whose records only add rows.

    Args:
        limits: of the writers.
        writers: replaces those of this task, where rows are distributed.

    Attributes:
        has_outputs: whether rows also go to outputs; then they have marks.
    """

    has_outputs: ClassVar[bool] = False

    def __init__(self, limits: PipelineLimits, writers: RowWriters | None = None) -> None:
        self._writers: RowWriters = writers or Writers(limits)
        self._rows = 0

    def add(
        self,
        table: TableWriter,
        rows: pa.Table,
        marks: Marks | None = None,
        size: int | None = None,
    ) -> None:
        """Take rows, whose columns are in the order of the table's; see ``Writers.add``."""
        del marks
        self._rows += rows.num_rows
        self._writers.add(table, rows, size)

    def pin(self, block_bytes: int) -> None:
        """Account for a block that added rows were cut from."""
        self._writers.pin(block_bytes)

    def end_block(self, block: Block, first: int) -> None:
        """Note that a block was taken; ``first`` is the place of its first record."""

    def finish(self) -> Iterator[Descriptor]:
        """End all files; yield their descriptors and the count of their rows."""
        yield from file_rows((table.plan.name, file, 0) for table, file in self._writers.finish())
        yield rows_row(RowCounts(self._rows))

    def abort(self) -> None:
        """Delete what was written."""
        self._writers.abort()
        self._rows = 0


class Changes:
    """Writes rows of connectors whose records replace and delete rows by key.

    Args:
        tables: writers of the known tables by name.
        file_names: names for delete files.
        upsert: whether plain inserts replace rows, too.
        limits: of the writers, and of what is kept for a step.
        reports_keys: whether other Spark tasks may change the same keys.
    """

    def __init__(
        self,
        tables: Mapping[str, TableWriter],
        file_names: FileNames,
        *,
        upsert: bool,
        limits: PipelineLimits,
        reports_keys: bool = False,
    ) -> None:
        self._writers = Writers(limits)
        self._reports_keys = reports_keys
        self._bytes_max = limits.changes_bytes_max
        self._tables = tables
        self._file_names = file_names
        self._upsert = upsert
        self._changes: dict[str, TableChanges] = {}  # of tables with rows
        self._kept_bytes = 0
        self._ended: list[tuple[int, TableWriter, ContentFile]] = []
        self._step = 0
        self._rows = RowCounts()

    def of(self, name: str) -> TableChanges:
        """Return the changes of one table."""
        changes = self._changes.get(name)
        if changes is None:
            table = self._tables[name]
            changes = self._changes[name] = TableChanges(
                table, self._file_names, self._upsert, self._reports_keys
            )
        return changes

    def add(
        self,
        table: TableWriter,
        rows: pa.Table,
        marks: Marks | None = None,
        size: int | None = None,
    ) -> None:
        """Take rows with their marks; see ``Writers.add``."""
        assert marks is not None, "a row-level change has an operation and a place in the order"
        size = rows.nbytes if size is None else size
        self._kept_bytes += size
        self.of(table.plan.name).add(rows, marks)

    def pin(self, block_bytes: int) -> None:
        """Do nothing: kept rows are counted when they are added."""

    def end_block(self, block: Block, first: int) -> None:
        """Note that a block was taken; end the step when it is too large."""
        del block, first
        self.end_step_if_large()

    def end_step_if_large(self) -> None:
        """End the step when it is too large; all changes that were read before were added."""
        if self._kept_bytes >= self._bytes_max:
            self._end_step()

    def finish(self) -> Iterator[Descriptor]:
        """End all files; yield their descriptors and the counts of rows."""
        self._end_step()
        yield from file_rows((table.plan.name, file, step) for step, table, file in self._ended)
        yield rows_row(self._rows)
        for name, changes in self._changes.items():
            if changes.unavailable:
                yield unavailable_row(name, changes.unavailable)
            if self._reports_keys and len(hashes := changes.changed_keys()):
                yield keys_row(name, hashes)

    def abort(self) -> None:
        """Delete what was written."""
        self._writers.abort()
        for changes in self._changes.values():
            changes.forget()
        self._kept_bytes = 0
        for _, table, file in self._ended:
            table.discard(file.file_path)
        self._ended = []
        self._rows = RowCounts()

    def _end_step(self) -> None:
        for changes in self._changes.values():
            self._rows = self._rows.plus(changes.settle(self._writers))
        self._kept_bytes = 0
        self._ended.extend((self._step, table, file) for table, file in self._writers.finish())
        self._step += 1


def _comparable(column: pa.Array) -> pa.Array:
    return column.storage if isinstance(column, pa.ExtensionArray) else column
