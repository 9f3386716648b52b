"""Steps that convert change events to rows: Debezium's and those of AWS DMS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.transforms.debezium_transform import (
    CDC,
    TRUNCATE,
    cdc_names,
    target_pattern,
)
from worker.transforms.message_keys import key_column
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Fields,
    Mask,
    Rows,
    as_mask,
    child,
    children,
    fields_of,
    merged_types,
    numbered,
    struct_of,
    valid,
)

_INSTANT: Final = pa.timestamp("ms", "UTC")
_TEXT: Final = pa.string()


def debezium(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``DebeziumTransform``."""
    return _Debezium(target_pattern(options))


def dms(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``DmsTransform``."""
    del options
    return _Dms()


def _cdc_fields(fields: Fields) -> Fields:
    """Request fields of the change's struct, which are no fields of the record."""
    return fields_of(fields.pop(CDC, None))


def _row(fields: Fields) -> pa.DataType:
    return pa.struct(list(fields.items()))


class _Debezium:
    """Converts a change event to its row and ``_cdc``."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._wants_key = self._evolves = False

    def plan(self, chain_plan: ChainPlan) -> None:
        chain_plan.reads_text = True
        cdc = _cdc_fields(chain_plan.fields)
        key = cdc.get("key")
        self._wants_key, self._evolves = key is not None, chain_plan.evolves
        if key is not None:
            chain_plan.key = merged_types(chain_plan.key, key)
        row = _row(chain_plan.fields)
        source = pa.struct([(name, _TEXT) for name in ("schema", "db", "table")])
        chain_plan.fields = {
            "op": _TEXT,
            "ts_ms": cdc.get("ts", pa.int64()),
            "source": source,
            "before": row,
            "after": row,
        }

    def apply(self, rows: Rows) -> None:
        op, source = rows.column("op"), rows.column("source")
        is_delete = as_mask(pc.equal(op, "d")) if pa.types.is_string(op.type) else None
        is_known = pa.types.is_struct(source.type) and not rows.is_mixed
        if rows.is_typed and is_known:
            is_known = self._fits(rows, source)
        if is_delete is None or not is_known:
            rows.suspect_all()
            rows.columns = {}
            return
        rows.suspect(~valid(source))
        if not rows.is_typed:
            rows.suspect(~valid(op))
        row, present = row_of_each(rows, is_delete)
        if rows.is_typed:
            rows.suspect(~present | ~valid(rows.column("ts_ms")))
            if CDC in row:
                rows.suspect_all()
        else:
            rows.suspect(~present & as_mask(pc.equal(op, TRUNCATE)))
            rows.drop(~present)
        cdc = self._cdc(rows, op, source)
        rows.columns = {**row, CDC: struct_of(cdc, rows.count)}

    def _fits(self, rows: Rows, source: pa.Array) -> bool:
        """Return whether the schema is one of change events."""
        names = {f.name for f in source.type}
        ts = rows.column("ts_ms").type
        return (
            {"op", "before", "after", "ts_ms", "source"} <= rows.columns.keys()
            and "table" in names
            and ("schema" in names or "db" in names)
            and (pa.types.is_integer(ts) or pa.types.is_duration(ts))
        )

    def _cdc(self, rows: Rows, op: pa.Array, source: pa.Array) -> Fields:
        schema, table = child(source, "schema"), child(source, "table")
        if rows.is_typed:
            has_schema = source.type.get_field_index("schema") >= 0
            database = schema if has_schema else child(source, "db")
        else:
            # a source that is null and has a schema is refused
            silent = ~valid(schema) & ~rows.ambiguous & ~rows.dropped
            rows.suspect(rows.origins.with_name("schema", silent))
            database = _either(rows, schema, child(source, "db"))
        rows.suspect(~valid(database) | ~valid(table))
        ts = rows.column("ts_ms")
        letters = _letters(op, "u", "d")
        cdc = {
            "op": letters,
            "ts": ts.cast(pa.int64()).cast(_INSTANT) if rows.is_typed else ts,
            "offset": rows.origins.column("offset"),
            **_named(rows, [database, table], lambda db, name: cdc_names(self._pattern, db, name)),
        }
        if self._wants_key:
            key = key_column(rows)
            if not rows.is_typed and (
                rows.origins.has_typed_keys or not pa.types.is_struct(key.type)
            ):
                rows.suspect(valid(key))  # only a map is part of the row
            cdc["key"] = key
        elif rows.key is not None:
            if self._evolves and not rows.is_typed:
                rows.suspect_all()  # unknown whether a record has one
        elif not rows.is_typed:
            # only schema evolution asks for it, to find records that have one
            has_key = rows.origins.may_have_map_key
            cdc["key"] = pa.array(np.where(has_key, 1, 0), mask=~has_key)
        return cdc


def row_of_each(rows: Rows, is_delete: Mask) -> tuple[dict[str, pa.Array], Mask]:
    """Return the fields of the row of each change, and where there is a row."""
    before, after = rows.column("before"), rows.column("after")
    present = np.where(is_delete, valid(before), valid(after))
    if not pa.types.is_struct(after.type):
        rows.suspect(valid(after) & ~is_delete)
        is_row = pa.types.is_struct(before.type)
        after = pa.nulls(rows.count, before.type if is_row else pa.struct([]))
    if not is_delete.any():
        return children(after), present
    if not pa.types.is_struct(before.type):
        rows.suspect(valid(before) & is_delete)
        before = pa.nulls(rows.count, after.type)
    old, new = children(before), children(after)
    if rows.is_typed and {n: c.type for n, c in old.items()} != {n: c.type for n, c in new.items()}:
        rows.suspect(is_delete)
        return new, present
    chosen = pa.array(is_delete)
    columns: dict[str, pa.Array] = {}
    for name in {**new, **old}:
        new_column, other = _pair(old.get(name), new.get(name))
        if new_column.type != other.type:
            rows.suspect(is_delete & valid(new_column))
            new_column = pa.nulls(rows.count, other.type)
        columns[name] = pc.if_else(chosen, new_column, other)
    return columns, present


def _pair(one: pa.Array | None, other: pa.Array | None) -> tuple[pa.Array, pa.Array]:
    """Return two columns of one type, of which one may be missing."""
    present = other if one is None else one
    assert present is not None
    nothing = pa.nulls(len(present), present.type)
    return (nothing if one is None else one), (nothing if other is None else other)


def _either(rows: Rows, first: pa.Array, second: pa.Array) -> pa.Array:
    """Return the first text, the second where it is null; other types are ambiguous."""
    texts = []
    for column in (first, second):
        if pa.types.is_string(column.type):
            texts.append(column)
        else:
            rows.suspect(valid(column))
            texts.append(pa.nulls(rows.count, _TEXT))
    return pc.coalesce(*texts)


def _named(
    rows: Rows, columns: list[pa.Array], names: Callable[[str, str], Mapping[str, str]]
) -> dict[str, pa.Array]:
    """Return texts made of two others, once per distinct pair; null is ``null``, as in Java."""
    codes = np.zeros(rows.count, np.int64)
    pairs: list[tuple[str, ...]] = [()]
    for column in columns:
        texts = _either(rows, column, pa.nulls(rows.count, _TEXT)).fill_null("null")
        encoded = texts.dictionary_encode()
        own = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        values = encoded.dictionary.to_pylist()
        both, codes = numbered(codes * len(values) + own, max(len(pairs) * len(values), 1))
        pairs = [(*pairs[i // len(values)], values[i % len(values)]) for i in both.tolist()]
    by_name = [names(*pair) for pair in pairs] if rows.count else []
    keys = by_name[0].keys() if by_name else ()
    places = pa.array(codes)
    return {key: pa.array([m[key] for m in by_name], _TEXT).take(places) for key in keys}


def _letters(op: pa.Array, update: str, delete: str) -> pa.Array:
    """Return ``U``, ``D`` or ``I``."""
    rest = pc.if_else(pc.equal(op, delete), "D", "I")
    return pc.if_else(pc.equal(op, update), "U", rest).fill_null("I")


class _Dms:
    """Converts a change event of DMS to its data and ``_cdc``."""

    def plan(self, chain_plan: ChainPlan) -> None:
        cdc = _cdc_fields(chain_plan.fields)
        metadata = pa.struct(
            [
                ("operation", _TEXT),
                ("timestamp", cdc.get("ts", _TEXT)),
                ("schema-name", _TEXT),
                ("table-name", _TEXT),
            ]
        )
        chain_plan.fields = {"data": _row(chain_plan.fields), "metadata": metadata}

    def apply(self, rows: Rows) -> None:
        data, metadata = rows.column("data"), rows.column("metadata")
        are_structs = pa.types.is_struct(data.type) and pa.types.is_struct(metadata.type)
        if rows.had_schema or not are_structs:
            rows.suspect_all()
            rows.columns = {}
            return
        rows.drop(~valid(data) | ~valid(metadata))
        op = child(metadata, "operation")
        rows.suspect(~valid(op))
        op = _either(rows, op, pa.nulls(rows.count, _TEXT))
        letters = _letters(op, "update", "delete")
        names = [child(metadata, "schema-name"), child(metadata, "table-name")]
        cdc = {
            "op": letters,
            "ts": child(metadata, "timestamp"),
            **_named(rows, names, lambda schema, table: {"source": f"{schema}.{table}"}),
        }
        rows.columns = {**children(data), CDC: struct_of(cdc, rows.count)}
