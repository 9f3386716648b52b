"""Records of a block without a column form, taken one by one through the record path.

Rules of this file:
- A record goes to all its tables or to none: it is converted for each table before any table gets
  it. This includes all records that transformations made of it.
- A tombstone without a table is dropped if the record before it in its partition deletes a row and
  has the same key. If that record is not in the batch, only a dead letter can report the tombstone.
- With ``errors.tolerance`` none the first refused record ends the task; with all it becomes a dead
  letter. A record that matches no table follows ``iceberg.tables.unmatched``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from connect.config.connector import ConnectorConfig
from connect.config.table_formats import DEAD_LETTER, FAIL
from connect.errors import RecordError, RetriableError
from connect.model.records import KafkaRecord, SinkRecord
from connect.records.conversion.row_converter import NAME_MAPPING_PROPERTY
from connect.records.record_path import ReferencePath
from connect.records.routing import TOMBSTONE_UNROUTABLE, UNMATCHED, WITHOUT_TABLE
from connect.records.row_operations import KEYLESS_CHANGE, ChangeRules, Operation
from connect.records.tables.schema_changes import SchemaChanges
from connect.records.tables.schema_evolution import FittingSchemas, changes
from connect.records.tables.table_creation import table_for
from connect.records.tables.type_conflicts import TypeConflicts, action_of
from worker.batch.descriptors import DeadLetter, SchemaRequest, TableRequest
from worker.batch.error_rows import DEAD_LETTERS_FULL, RECORD_FAILED, REFUSALS, TYPE_CONFLICT
from worker.batch.pipeline_spec import PipelineSpec
from worker.convert.table_columns import filled
from worker.pipeline.progress import DEAD, DROPPED, WRITTEN
from worker.write.table_writer import TableWriter
from worker.write.upsert_writer import Changes, Marks

Before = Callable[[], KafkaRecord | None]


def no_record() -> KafkaRecord | None:
    """Return no record: the one before is not known."""
    return None


@dataclass(slots=True)
class _TableRows:
    """Rows of one table with the operation, the order and the rank of each."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)

    def marks(self) -> Marks:
        """Return what the rows change."""
        numbers = (self.operations, self.orders, self.ranks)
        return Marks(*(np.array(each, np.int64) for each in numbers))


@dataclass(slots=True)
class Requests:
    """Changes of tables that the batch needs before it can be written.

    Attributes:
        tables: by table name.
        schemas: by table name.
    """

    tables: dict[str, TableRequest] = field(default_factory=dict)
    schemas: dict[str, SchemaRequest] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tables or self.schemas)


@dataclass(slots=True)
class MovedValues:
    """Values that other columns took, by table, column and other column.

    Attributes:
        counts: of written records.
        of_record: of the present record.
    """

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    of_record: list[tuple[str, str, str]] = field(default_factory=list)


class RecordPath:
    """Reads, routes and converts records one by one.

    Args:
        spec: of the Spark task.
        tables: writers of the known tables by name.
        reference: of the spec's connector.
        changes: collects row-level changes; None where records only add rows.

    Attributes:
        requests: changes of tables that the batch needs.
        dead_letters: refused records.
        moved: values that went to other columns.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        tables: Mapping[str, TableWriter],
        reference: ReferencePath,
        changes: Changes | None = None,
    ) -> None:
        self._spec = spec
        self._tables = tables
        self._reference = reference
        self.requests = Requests()
        self.dead_letters: list[DeadLetter] = []
        self._dead_letter_bytes = 0
        self._changes = changes
        self._rules = ChangeRules(spec.config)
        self.moved = MovedValues()
        self._actions: dict[str, str] = {}
        self._fitting = FittingSchemas(spec.config)
        self._rows: dict[str, _TableRows] = {}

    def take(
        self,
        record: KafkaRecord,
        *,
        order: int = 0,
        rank: int = 0,
        before: Before = no_record,
    ) -> int:
        """Read, route and convert a record.

        Args:
            record: the record.
            order: its place among all records of the Spark task.
            rank: as in ``Marks``.
            before: returns the record that was read before it.

        Returns:
            WRITTEN, DROPPED or DEAD.

        Raises:
            RecordError: the record is refused, and refusals are not tolerated.
            RetriableError: ``DEAD_LETTERS_FULL``, the dead letters of the batch exceed their bound.
        """
        try:
            return self._take(record, order, rank)
        except RecordError as error:
            error.at(topic=record.topic, partition=record.partition, offset=record.offset)
            if error.code in WITHOUT_TABLE:
                if self._spec.config.unmatched == "drop":
                    return DROPPED
                if error.code == TOMBSTONE_UNROUTABLE and self._is_answered(record, before()):
                    return DROPPED
                is_tolerated = self._spec.config.unmatched == "dead-letter"
            else:
                is_kept = error.code == KEYLESS_CHANGE and self._spec.config.keeps_keyless_changes
                is_tolerated = is_kept or self._spec.config.errors.tolerance_all
            if not is_tolerated:
                raise
            error.__traceback__ = error.__context__ = None  # they keep frames alive
            self._keep(DeadLetter(record, error))
            return DEAD

    def _is_answered(self, tombstone: KafkaRecord, before: KafkaRecord | None) -> bool:
        """Return whether a tombstone without a table has nothing to delete, or cannot be judged."""
        place = tombstone.topic, tombstone.partition
        if before is None or (before.topic, before.partition) != place:
            return self._spec.config.unmatched == "fail"  # its delete may be in the batch before
        if before.key != tombstone.key or before.value is None:
            return False
        try:
            deletes = [self._rules.operation(each) for each in self._reference.read(before)]
        except RecordError:
            return False
        return bool(deletes) and all(each is Operation.DELETE for each in deletes)

    def _keep(self, dead_letter: DeadLetter) -> None:
        self._dead_letter_bytes += dead_letter.size
        if self.dead_letters and self._dead_letter_bytes > self._spec.limits.dead_letter_bytes_max:
            raise RetriableError(
                f"{len(self.dead_letters) + 1} dead letters of one batch take more than "
                f"{self._spec.limits.dead_letter_bytes_max} bytes, and it cannot be made smaller",
                code=DEAD_LETTERS_FULL,
            )
        self.dead_letters.append(dead_letter)

    def rows(self) -> Iterable[tuple[TableWriter, pa.Table, Marks]]:
        """Return the rows taken since the last call, in the tables' Arrow schemas."""
        taken, self._rows = self._rows, {}
        for name, rows in taken.items():
            table = self._tables[name]
            yield table, to_arrow(rows.rows, table), rows.marks()

    def learn_key(self, record: KafkaRecord, names: Iterable[str]) -> None:
        """Take the key columns of tables from a record's key.

        Raises:
            RecordError: the key names no columns.
        """
        assert self._changes is not None
        for converted in self._reference.read(record):
            for name in names:
                self._changes.of(name).learn(converted.key)

    def _take(self, record: KafkaRecord, order: int, rank: int) -> int:
        text = self._spec.refused.get((record.topic, record.partition, record.offset))
        if text is not None:
            raise RecordError(f"the record cannot be processed: {text}", code=RECORD_FAILED)
        taken: list[tuple[str, dict[str, Any], Operation]] = []
        self.moved.of_record.clear()
        is_routed = False
        for converted in self._reference.read(record):
            names = self._reference.route(converted)
            if converted.value is None:  # without a table there is nothing to delete
                names = tuple(name for name in names if name not in self._spec.absent)
            operation = self._rules.operation(converted) if names else Operation.INSERT
            has_key = record.key is not None or converted.key is not None
            for name in names:
                is_routed = True
                own = operation if has_key else self._without_key(name, operation)
                row = self._converted(name, converted, own)
                if row is not None:
                    taken.append((name, row, own))
        for name, row, operation in taken:
            rows = self._rows.setdefault(name, _TableRows())
            rows.rows.append(row)
            rows.operations.append(int(operation))
            rows.orders.append(order)
            rows.ranks.append(rank)
        self.moved.counts.update(self.moved.of_record)
        return WRITTEN if is_routed else DROPPED

    def _without_key(self, name: str, operation: Operation) -> Operation:
        """Return the operation of a record without message key on a table."""
        if self._changes is None or name not in self._tables:
            return operation
        return self._changes.of(name).keyless.operation(operation)

    def _converted(
        self, name: str, record: SinkRecord, operation: Operation
    ) -> dict[str, Any] | None:
        """Return the record's row for a table; None when the table must change first."""
        table = self._tables.get(name)
        if table is None and record.value is None and name not in self._spec.unusable:
            self.requests.tables.setdefault(name, TableRequest(name))
            return None
        if table is None:
            self._request_table(name, record)
            return None
        if operation is not Operation.DELETE and self._request_change(table, record):
            return None
        return self._row(record, table, operation)

    def _row(
        self, record: SinkRecord, table: TableWriter, operation: Operation
    ) -> dict[str, Any] | None:
        mapping, name = table.plan.properties.get(NAME_MAPPING_PROPERTY), table.plan.name
        try:
            if self._changes is not None:
                changes = self._changes.of(name)
                if operation is not Operation.APPEND:
                    changes.learn(record.key)
                if operation is Operation.DELETE:
                    return self._reference.key_row(record, changes.key_schema, mapping)
            action = self._actions.get(name)
            if action is None:
                action = self._actions[name] = action_of(self._spec.config, name)
            if action == DEAD_LETTER:
                return self._reference.row(record, table.schema, mapping)
            return self._settled(record, table, action, mapping)
        except RecordError as error:
            error.at(table=name)
            raise

    def _settled(
        self, record: SinkRecord, table: TableWriter, action: str, mapping: str | None
    ) -> dict[str, Any] | None:
        """Return the record's row, with values that other columns take; None as ``_converted``."""
        name, config = table.plan.name, self._spec.config
        keys = config.table(name).id_columns
        if self._changes is not None:
            keys = self._changes.of(name).key_names
        conflicts = TypeConflicts(table.schema, config, action, keys, table.plan.partition_names)
        row = self._reference.row(record, table.schema, mapping, conflicts.settle)
        if self._request(table, conflicts.changes):
            return None
        if action == FAIL and conflicts.columns:
            raise _failed_table(record, name, conflicts.columns)
        self.moved.of_record += [(name, *each) for each in conflicts.columns.items()]
        return row

    def _request_table(self, name: str, record: SinkRecord) -> None:
        if (refusal := self._spec.unusable.get(name)) is not None:
            text = f"the record's table cannot be written: {refusal.message}"
            if refusal.code in REFUSALS and not self._spec.config.sends_refused_to_dead_letters:
                raise RetriableError(text, code=refusal.code, table=name)
            raise RecordError(text, code=refusal.code, table=name)
        if name in self._spec.absent - self._spec.missing:
            raise RecordError("the table does not exist", stage="ROUTE", code=UNMATCHED, table=name)
        requested = self.requests.tables.get(name)
        if requested is not None and (
            requested.schema_json or not self._spec.config.auto_create_enabled
        ):
            return
        if len(self.requests.tables) >= self._spec.limits.requests_max:
            return  # enough for one run; the next one requests the rest
        if not self._spec.config.auto_create_enabled:
            self.requests.tables[name] = TableRequest(name)
            return
        self.requests.tables[name] = _new_table(name, record, self._spec.config)

    def _request_change(self, table: TableWriter, record: SinkRecord) -> bool:
        """Request columns that the table lacks; return whether there are any."""
        if not self._spec.config.evolve_schema_enabled:
            return False
        mapping = table.plan.properties.get(NAME_MAPPING_PROPERTY)
        name, names = table.plan.name, table.plan.partition_names
        if self._fitting.fits(table.schema, record, mapping, name):
            return False
        missing = changes(table.schema, record, self._spec.config, mapping, names, table_name=name)
        return self._request(table, missing)

    def _request(self, table: TableWriter, missing: SchemaChanges) -> bool:
        """Request changes of a table; return whether there are any."""
        if not missing:
            return False
        name = table.plan.name
        requested = self.requests.schemas.get(name)
        reported = requested.changes if requested is not None else ()
        text = missing.to_json()
        if text not in reported and len(reported) < self._spec.limits.requests_max:
            schema_id = table.schema.schema_id
            self.requests.schemas[name] = SchemaRequest(name, schema_id, (*reported, text))
        return True


def _new_table(name: str, record: SinkRecord, config: ConnectorConfig) -> TableRequest:
    new = table_for(name, record, config)
    return TableRequest(
        name,
        new.schema.model_dump_json(),
        new.spec.model_dump_json(),
        new.sort_order.model_dump_json(),
        new.location,
        dict(new.properties),
    )


def _failed_table(record: SinkRecord, table: str, columns: Iterable[str]) -> RetriableError:
    named = ", ".join(columns)
    return RetriableError(
        f"the source has changed a type, and the table does not take the values of {named}: change "
        f"the type of the column, or set iceberg.table.{table}.type-conflict to another action",
        code=TYPE_CONFLICT,
        table=table,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def to_arrow(rows: list[dict[str, Any]], table: TableWriter) -> pa.Table:
    """Return rows of the record path in the table's Arrow schema; a delete has only its key."""
    columns = [
        with_names(pa.array([row.get(f.name) for row in rows], f.type), stored.type)
        for f, stored in zip(table.row_schema, table.arrow_schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=table.arrow_schema)


def with_names(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with the field names of another type of equal shape.

    Required fields of null structs get a value, because the Parquet writer requires one.
    """
    if not pa.types.is_nested(kind):
        return column
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        children = [with_names(column.field(i), f.type) for i, f in enumerate(kind)]
        children = [
            child if f.nullable or not child.null_count else filled(child)
            for child, f in zip(children, kind, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_map(kind):
        keys = with_names(column.keys, kind.key_type)
        items = with_names(column.items, kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=mask)
    values = with_names(column.values, kind.value_type)
    return pa.LargeListArray.from_arrays(column.offsets, values, type=kind, mask=mask)
