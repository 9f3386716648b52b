"""Steps that read or change message keys.

Rules of this file:
- A step of keys is the step of values over the key's fields. A record with an ambiguous key is
  ambiguous.
- The record path decides about a record without a key: it has no key after the step, or the record
  is ambiguous.
- Keys are read for the first step that uses them, unless an earlier step made a new key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from connect.errors import RecordError
from connect.model.records import SinkRecord
from connect.records.transforms.transform_chain import ChainedTransform
from worker.transforms.hoist_field import Hoist
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Mask,
    Rows,
    children,
    fields_of,
    struct_of,
    valid,
)


class MessageKeyStep:
    """A step over the keys.

    Args:
        inner: the step.
        link: the transformation.
    """

    def __init__(self, inner: ColumnStep, link: ChainedTransform) -> None:
        self._inner = inner
        self._keeps_none = _keeps_none(link)

    def plan(self, chain_plan: ChainPlan) -> None:
        """See ``ColumnStep``."""
        kind = chain_plan.key
        own = ChainPlan(fields_of(kind), evolves=chain_plan.evolves, whole=kind)
        self._inner.plan(own)
        # keys are not searched for names, as texts of values are
        chain_plan.is_hopeless |= own.is_hopeless or own.reads_text or bool(own.shadowed)
        is_whole = isinstance(self._inner, Hoist) and own.whole is not None
        chain_plan.key = own.whole if is_whole else pa.struct(list(own.fields.items()))

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        keys = keys_of(rows)
        is_hoist = isinstance(self._inner, Hoist)
        if keys.whole is not None and not is_hoist:
            _open(keys)
        if not self._keeps_none and (keys.is_typed or not is_hoist):
            keys.suspect(keys.absent)  # no key has no schema
        self._inner.apply(keys)


def _keeps_none(link: ChainedTransform) -> bool:
    """Return whether a record without a key stays as it is."""
    record = SinkRecord("", 0, 0, None, value={})
    try:
        return link.apply(record) == record
    except RecordError:
        return False


def _open(keys: Rows) -> None:
    """Return the fields of keys in one column; keys without fields are ambiguous."""
    whole, keys.whole = keys.whole, None
    assert whole is not None
    keys.absent = absent_keys(whole)
    if pa.types.is_struct(whole.type):
        keys.columns = children(whole)
    elif keys.is_typed:
        keys.suspect_all()  # keys of this block have no schema either
    else:
        keys.suspect(valid(whole))


def absent_keys(column: pa.Array) -> Mask | None:
    """Return rows without a key; None where all have one."""
    return ~valid(column) if column.null_count else None


def keys_of(rows: Rows) -> Rows:
    """Return the keys as rows; ambiguous keys are ambiguous records."""
    if rows.key is None:
        column, ambiguous = rows.origins.keys()
        rows.suspect(ambiguous)
        is_typed = rows.origins.has_typed_keys
        rows.key = _made(rows, is_typed=is_typed, had_schema=is_typed)
        if pa.types.is_struct(column.type):
            rows.key.columns, rows.key.absent = children(column), absent_keys(column)
        else:
            rows.key.whole = column
    keys = rows.key
    keys.ambiguous, keys.dropped = rows.ambiguous, rows.dropped  # they change in place
    keys.topics, keys.origins = rows.topics, rows.origins
    return keys


def _made(rows: Rows, *, is_typed: bool, had_schema: bool) -> Rows:
    key_rows = Rows({}, rows.origins, rows.ambiguous, rows.dropped)
    key_rows.is_typed, key_rows.had_schema = is_typed, had_schema
    return key_rows


def key_column(rows: Rows) -> pa.Array:
    """Return the keys, null where there is none."""
    if rows.key is None:
        column, ambiguous = rows.origins.keys()
        rows.suspect(ambiguous)
        return column
    if rows.key.whole is not None:
        return rows.key.whole
    return struct_of(rows.key.columns, rows.count, rows.key.absent)


def repeat_keys(rows: Rows, chosen: pa.Array) -> None:
    """Repeat the keys with their rows."""
    keys = rows.key
    if keys is None:
        return
    keys.columns = {name: column.take(chosen) for name, column in keys.columns.items()}
    keys.whole = None if keys.whole is None else keys.whole.take(chosen)
    keys.absent = None if keys.absent is None else keys.absent[np.asarray(chosen)]
