"""Decoded rows of a block, routed, converted and written by columns.

Rules of this file:
- An ambiguous row is not written: the record path must take its record.
- Rows of all tables with equal columns are converted once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from connect.errors import RecordError
from connect.records.record_path import ReferencePath
from connect.records.row_operations import Keyless, Operation
from connect.records.transforms.transform_chain import changes_keys
from worker.batch.blocks import Block, one_chunk
from worker.batch.pipeline_spec import PipelineSpec
from worker.decode.decoded_rows import Columns
from worker.pipeline.progress import DROPPED, WRITTEN, Outcome
from worker.pipeline.record_fallback import RecordPath
from worker.pipeline.table_group import Deleted, FieldsOfOthers, Part, TableGroup
from worker.write.parquet_writer import sizes_of
from worker.write.partitions import split_by_codes, take_rows
from worker.write.routes import ColumnRouter
from worker.write.table_writer import TableWriter
from worker.write.upsert_writer import Appends, Changes, ColumnOperations, Marks, RowOutput

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Targets = list[tuple[str, ...] | None]
Spread = Callable[[Rows, Mask], None]


@dataclass(slots=True)
class _BlockRows:
    """The decoded rows of a block.

    Attributes:
        block: the records.
        decoded: the rows.
        targets: tables by code; None where the record path must route.
        codes: target of each row.
        ambiguous: rows whose records the record path must take.
        marks: what the rows change, for row-level changes.
    """

    block: Block
    decoded: Columns
    targets: Targets
    codes: Rows
    ambiguous: Mask
    marks: Marks | None = None


class ColumnWriter:
    """Writes decoded rows.

    Args:
        spec: of the Spark task.
        tables: writers of the known tables by name.
        records: learns key columns from records, and collects what tables lack.
        output: takes the rows.
        reference: routes records.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        tables: Mapping[str, TableWriter],
        records: RecordPath,
        output: RowOutput | Changes,
        reference: ReferencePath,
    ) -> None:
        self._unit = spec.config.timestamp_unit
        self._refuses_unavailable = spec.config.errors.refuses_unavailable
        aggregation = spec.config.aggregation
        self._event_time = None if aggregation is None else aggregation.time_field
        self._tables = tables
        self._records = records
        self._output = output
        self._changes = output if isinstance(output, Changes) else None
        self._has_outputs = isinstance(output, Appends) and output.has_outputs
        self._others = FieldsOfOthers() if spec.config.evolve_schema_enabled else None
        self._router = ColumnRouter(spec.config, reference.route)
        self._operations = ColumnOperations(spec.config)
        makes_keys = any(changes_keys(t.class_name) for t in spec.config.transforms)
        # None where no table appends rows without key
        self._makes_keys = makes_keys if spec.config.appends_without_key else None

    @property
    def route_paths(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the fields that decide about tables."""
        return self._router.paths

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Paths of the fields that are needed in addition to the tables' columns."""
        return (*self._router.paths, self._operations.path)

    @property
    def uses_schema(self) -> bool:
        """Whether tables are named by the schemas of values."""
        return self._router.uses_schema

    def write(
        self,
        block: Block,
        decoded: Columns,
        outcome: Outcome,
        slow: Mask,
        *,
        order: int,
        ranks: Rows | None = None,
        spread: Spread | None = None,
    ) -> None:
        """Write decoded rows.

        Args:
            block: the records.
            decoded: their rows.
            outcome: of each record; set for those that are written or dropped.
            slow: records that the record path must take; ambiguous ones are added.
            order: place of the block's first record among all records of the Spark task.
            ranks: of the block's records, for row-level changes; see ``ChangeOrder``.
            spread: adds to ambiguous rows the other rows of their records; None if each row is
                a record.
        """
        if not decoded.table.num_rows:
            slow[decoded.places] = True  # no table is known, so no column was decoded
            return
        rows = self._routed(block, decoded, slow)
        targets, codes, ambiguous = rows.targets, rows.codes, rows.ambiguous
        nowhere = np.array([target == () for target in targets])
        rows.marks = self._marks(rows, order, ranks)
        groups = self._tables_by_columns(targets)
        self._add_unknown(rows, groups)
        parts = [
            Part.of(
                tables,
                members,
                decoded,
                codes,
                unit=self._unit,
                deleted=self._deleted(rows.marks, tables),
                event_time=self._event_time,
                refuses_unavailable=self._refuses_unavailable,
            )
            for tables, members in groups
        ]
        for part in parts:
            part.add_ambiguous(ambiguous)
        if spread is not None:
            spread(decoded.places, ambiguous)
        slow[decoded.places[ambiguous]] = True
        rows.ambiguous = ambiguous = slow[decoded.places]  # all rows of a record
        outcome[decoded.places[nowhere[codes] & ~ambiguous]] = DROPPED
        outcome[decoded.places[~nowhere[codes]]] = WRITTEN
        if not self._records.requests:
            for part in parts:
                self._write_part(part, rows)

    def _routed(self, block: Block, decoded: Columns, slow: Mask) -> _BlockRows:
        """Route rows; those for tables that are not known, or are unfit, are ambiguous."""
        topics = None
        if self._router.uses_topic:
            topics = decoded.topics
            if topics is None:
                topics = one_chunk(block.table.column("topic")).take(pa.array(decoded.places))
        routed = self._router.route(decoded.table, topics, decoded.schema_name)
        ambiguous = slow[decoded.places]
        codes = routed.codes
        if codes is None:
            codes = np.zeros(decoded.table.num_rows, np.int64)
        used = np.bincount(codes, minlength=len(routed.targets)) > 0
        targets: Targets = []
        for code, target in enumerate(routed.targets):
            is_known = target is not None and all(
                name in self._tables and name not in decoded.unfit for name in target
            )
            targets.append(target if is_known and used[code] else None)
            if not is_known and used[code]:
                ambiguous |= codes == code
        return _BlockRows(block, decoded, targets, codes, ambiguous)

    def _marks(self, rows: _BlockRows, order: int, ranks: Rows | None) -> Marks | None:
        """Return what the rows change; rows of tables whose key stays unknown are ambiguous."""
        if self._changes is None and not self._has_outputs:
            return None
        places = rows.decoded.places
        of_rows = np.zeros(len(places), np.int64) if ranks is None else ranks[places]
        if self._changes is None:
            inserts = np.full(len(places), int(Operation.INSERT), np.int64)
            return Marks(inserts, order + places, of_rows)
        operations, more = self._operations.of(rows.decoded.table)
        if more is not None:
            rows.ambiguous |= more
        tombstones = rows.decoded.tombstones
        if tombstones is not None:
            operations = np.where(tombstones, int(Operation.DELETE), operations)
        keyed = self._keyed(rows, operations)
        self._learn_keys(rows, keyed)
        if tombstones is not None:
            unclear = _without_row(rows, self._changes) | bool(self._router.paths)
            rows.ambiguous |= tombstones & (unclear if keyed is None else unclear | ~keyed)
        return Marks(operations, order + places, of_rows)

    def _learn_keys(self, rows: _BlockRows, keyed: Mask | None) -> None:
        """Take the key columns of tables from message keys, where nothing else names them."""
        assert self._changes is not None
        for code, target in enumerate(rows.targets):
            unknown = [n for n in target or () if not self._changes.of(n).has_key]
            if not unknown:
                continue
            own = rows.codes == code if keyed is None else (rows.codes == code) & keyed
            for record in rows.block.records(rows.decoded.places[own][:1]):
                try:
                    self._records.learn_key(record, unknown)
                except RecordError:
                    rows.ambiguous |= own  # the record path gives the reason

    def _keyed(self, rows: _BlockRows, operations: Rows) -> Mask | None:
        """Mark rows without message key as appended where their table says so.

        Returns:
            The other rows; None for all. Rows that only the record path can judge are ambiguous.
        """
        if self._changes is None or self._makes_keys is None:
            return None
        kinds = [{self._changes.of(n).keyless for n in target or ()} for target in rows.targets]
        by_target = np.array([max(kind, default=Keyless.REFUSE) for kind in kinds], np.int64)
        if not by_target.any():
            return None
        appended = (by_target[rows.codes] > 0) & ~rows.block.has_key[rows.decoded.places]
        if not appended.any():
            return None
        differ = np.array([len(kind) > 1 for kind in kinds]) | self._makes_keys
        refused = (by_target == Keyless.APPEND_INSERTS)[rows.codes]
        refused &= operations != Operation.INSERT
        rows.ambiguous |= appended & (differ[rows.codes] | refused)
        operations[appended] = Operation.APPEND
        return ~appended

    def _add_unknown(self, rows: _BlockRows, groups: list[TableGroup]) -> None:
        """Mark rows with values in fields that their table lacks; rows that delete add none."""
        if self._others is None:
            return
        unknown = self._others.rows(rows.decoded, groups, rows.codes)
        if unknown is None:
            return
        if rows.marks is not None:
            unknown = unknown & (rows.marks.operations != Operation.DELETE)
        rows.ambiguous |= unknown

    def _deleted(self, marks: Marks | None, tables: list[TableWriter]) -> Deleted | None:
        if marks is None or self._changes is None:
            return None
        table_changes = [self._changes.of(table.plan.name) for table in tables]
        places = {place for changes in table_changes for place in changes.key_places}
        return Deleted(marks.operations == Operation.DELETE, frozenset(places))

    def _tables_by_columns(self, targets: Targets) -> list[TableGroup]:
        """Return tables with equal columns, and which targets have one of them."""
        groups: dict[tuple[str, ...], tuple[dict[str, TableWriter], Mask]] = {}
        for code, target in enumerate(targets):
            for name in target or ():
                table = self._tables[name]
                group = groups.get(table.columns_key)
                if group is None:
                    group = groups[table.columns_key] = {}, np.zeros(len(targets), np.bool_)
                group[0][name] = table
                group[1][code] = True
        return [(list(tables.values()), members) for tables, members in groups.values()]

    def _write_part(self, part: Part, source: _BlockRows) -> None:
        targets, codes, ambiguous, marks = (
            source.targets,
            source.codes,
            source.ambiguous,
            source.marks,
        )
        if part.rows is not None:
            codes, ambiguous = codes[part.rows], ambiguous[part.rows]
            marks = marks and marks.of(part.rows)
        rows = part.converted
        if ambiguous.any():
            rows, codes = rows.filter(pa.array(~ambiguous)), codes[~ambiguous]
            marks = marks and marks.of(~ambiguous)
        if not rows.num_rows:
            return
        order, bounds = split_by_codes(codes, len(targets))
        if order is not None:
            rows = take_rows(rows, order)
            marks = marks and marks.of(order)
        sizes = sizes_of(rows, bounds) if order is not None else [rows.nbytes] * len(targets)
        self._output.pin(sum(sizes) if order is not None else rows.nbytes)
        members = {id(table) for table in part.tables}
        for code in np.flatnonzero(np.diff(bounds)).tolist():
            start, end = int(bounds[code]), int(bounds[code + 1])
            piece = rows.slice(start, end - start)
            piece_marks = marks and marks.of(slice(start, end))
            for name in targets[code] or ():
                table = self._tables[name]
                if id(table) in members:
                    self._output.add(table, piece, piece_marks, size=sizes[code])


def _without_row(rows: _BlockRows, all_changes: Changes) -> Mask:
    """Return rows whose key names no row of their table."""
    out = np.zeros(len(rows.codes), np.bool_)
    for code, target in enumerate(rows.targets):
        own = rows.codes == code
        for name in target or ():
            changes = all_changes.of(name)
            columns = [changes.table.schema.fields[i].name for i in changes.key_places]
            for column in map(rows.decoded.table.column, columns):
                out |= column.is_null().to_numpy() & own
            out |= own & (not columns)
    return out
