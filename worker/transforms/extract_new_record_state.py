"""``ExtractNewRecordState`` by columns.

Rules of this file:
- The name of a schema decides whether values are change events. So the step has no column form
  behind a step that may change the schema.
- A delete that becomes a tombstone is dropped where the connector drops tombstones. Else its row
  has the fields of its key, or it is ambiguous if a later step would receive it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.transforms.debezium_transform import TRUNCATE
from connect.records.transforms.extract_new_record_state import (
    DELETED,
    ENVELOPE_SUFFIX,
    FieldReference,
    RecordState,
    drops_fields,
)
from worker.transforms.change_events import row_of_each
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Mask,
    Rows,
    as_mask,
    child,
    children,
    merged_types,
    valid,
)

Tombstones = Literal["dropped", "rows", "ambiguous"]
"""What becomes of deletes that become tombstones."""


def record_state(options: Mapping[str, Any], tombstones: Tombstones) -> ColumnStep | None:
    """Return the step of ``ExtractNewRecordState``; None if headers decide."""
    return None if drops_fields(options) else _State(options, tombstones)


class _State:
    """Replaces change events with their rows."""

    def __init__(self, options: Mapping[str, Any], tombstones: Tombstones) -> None:
        self._state = RecordState(options)
        is_tombstone = not self._state.is_rewriting and not self._state.drops_deletes
        self._tombstones = tombstones if is_tombstone else None

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``. Without a schema, values are not changed."""
        if self._tombstones == "rows":
            fields = pa.struct(list(chain_plan.fields.items()))
            chain_plan.key = merged_types(chain_plan.key, fields)

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if not rows.is_typed or not (rows.origins.schema_name or "").endswith(ENVELOPE_SUFFIX):
            return
        if not self._fits(rows):
            rows.suspect_all()
            rows.columns, rows.whole = {}, None
            return
        for reference in self._state.headers:
            _referenced(rows, reference)
        is_insert = valid(rows.column("after"))
        is_delete = ~is_insert & valid(rows.column("before"))
        nothing = ~is_insert & ~is_delete
        rows.suspect(nothing & as_mask(pc.equal(rows.column("op"), TRUNCATE)))
        rows.drop(nothing)
        if self._state.drops_deletes:
            rows.drop(is_delete)
        elif self._tombstones == "ambiguous":
            rows.suspect(is_delete)
        self._unwrap(rows, is_delete)
        if self._tombstones == "dropped":
            rows.drop(is_delete)
        elif self._tombstones == "rows" and is_delete.any():
            _keys_as_rows(rows, is_delete)

    def _fits(self, rows: Rows) -> bool:
        """Return whether the schema is one of change events with all configured structs."""
        columns = rows.columns
        is_event = (
            {"op", "before", "after"} <= columns.keys()
            and pa.types.is_string(columns["op"].type)
            and pa.types.is_struct(columns["before"].type)
            and pa.types.is_struct(columns["after"].type)
        )
        return is_event and all(
            added.struct is None
            or (added.struct in columns and pa.types.is_struct(columns[added.struct].type))
            for added in (*self._state.fields, *self._state.headers)
        )

    def _unwrap(self, rows: Rows, is_delete: Mask) -> None:
        is_rewriting = self._state.is_rewriting
        old = is_delete if is_rewriting else np.zeros(rows.count, np.bool_)
        row, _ = row_of_each(rows, old)
        added: dict[str, pa.Array] = {}
        if is_rewriting:
            added[DELETED] = pc.if_else(pa.array(is_delete), "true", "false")
        count = len(added)
        for reference in self._state.fields:
            column = _referenced(rows, reference)
            if column is not None:
                added[reference.name] = column
                count += 1
        if len(added) < count or not added.keys().isdisjoint(row):
            rows.suspect_all()  # two fields of one name
        if self._state.route:
            self._route(rows, row, is_delete & ~old)
        rows.columns = {**row, **added}

    def _route(self, rows: Rows, row: Mapping[str, pa.Array], is_old: Mask) -> None:
        topics = row.get(self._state.route)
        old = child(rows.column("before"), self._state.route)
        if topics is None or topics.type != old.type or not pa.types.is_string(old.type):
            rows.suspect_all()
            return
        topics = pc.if_else(pa.array(is_old), old, topics)
        is_blank = pc.equal(pc.utf8_trim_whitespace(topics), "").fill_null(True)  # noqa: FBT003 - Arrow's
        rows.topics = pc.if_else(is_blank, rows.current_topics, topics)


def _referenced(rows: Rows, reference: FieldReference) -> pa.Array | None:
    """Return an added field; None if events have none. Structs are ambiguous."""
    column = None
    if reference.struct is not None:
        parent = rows.columns[reference.struct]
        if parent.type.get_field_index(reference.field) >= 0:
            column = child(parent, reference.field)
        elif reference.field in rows.columns:  # a snapshot has no transaction
            column = pc.if_else(
                parent.is_valid(),
                rows.columns[reference.field],
                pa.scalar(None, rows.columns[reference.field].type),
            )
    else:
        column = rows.columns.get(reference.field)
    if column is not None and pa.types.is_struct(column.type):
        rows.suspect(valid(column))
        return pa.nulls(rows.count)
    return column


def _keys_as_rows(rows: Rows, is_delete: Mask) -> None:
    """Give tombstones the fields of their keys."""
    places = np.flatnonzero(is_delete)
    keys, ambiguous = rows.origins.picked(places).keys()
    if rows.key is not None or not pa.types.is_struct(keys.type):
        rows.suspect(is_delete)  # an earlier step changed the keys, or they have no fields
        return
    unclear = ~valid(keys) if ambiguous is None else ~valid(keys) | ambiguous
    fields = children(keys)
    back = np.full(rows.count, -1, np.int64)
    back[places] = np.arange(len(places))
    chosen = pa.array(back, mask=~is_delete)
    for name, column in rows.columns.items():
        own = fields.get(name)
        if own is not None and own.type != column.type:
            unclear |= valid(own)
            own = None
        own = pa.nulls(len(places), column.type) if own is None else own
        rows.columns[name] = pc.if_else(pa.array(is_delete), own.take(chosen), column)
    mask = np.zeros(rows.count, np.bool_)
    mask[places] = unclear
    rows.suspect(mask)
    rows.tombstones = is_delete
