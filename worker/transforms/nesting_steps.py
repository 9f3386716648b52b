"""Steps that change the nesting of fields: flatten, parse texts, one row for each element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.transforms.chain_limits import RECORDS_MAX
from connect.records.transforms.value_paths import steps as path_of
from worker.batch.blocks import one_chunk
from worker.decode.scanned_json import ScannedJson, json_decoder, together
from worker.transforms.key_steps import repeat_keys
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Fields,
    Mask,
    Positions,
    Rows,
    TooManyRows,
    at_path,
    children,
    fields_of,
    put_at,
    type_at,
    valid,
    want,
    with_type_at,
)

_CELLS_MAX: Final = 8_000_000
_NAMES_MAX: Final = 500


# ------------------------------------------------------------------ Flatten


def flatten(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``Flatten``."""
    return _Flatten(options["delimiter"]) if options["delimiter"] else None


class _Flatten:
    """Makes fields of structs fields of the top level.

    A name with the delimiter may be the name of a field, or a path. All readings of the requested
    names are decoded. Where a record may hold two of them their order decides, so it is ambiguous.
    """

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter

    def plan(self, wanted: ChainPlan) -> None:
        wanted.reads_text = True
        readings = {name: list(self._readings(name)) for name in wanted.fields}
        if sum(map(len, readings.values())) > _NAMES_MAX:
            wanted.is_hopeless = True
            return
        fields: Fields = {}
        for name, kind in wanted.fields.items():
            # a struct leaves no field of its own name
            fields[name] = pa.struct([]) if pa.types.is_struct(kind) else kind
        for name, paths in readings.items():
            for path in paths:
                if len(path) > 1 and not pa.types.is_struct(wanted.fields[name]):
                    want(fields, path, wanted.fields[name])
        wanted.fields = fields

    def _readings(self, name: str) -> Iterator[tuple[str, ...]]:
        yield (name,)
        start = name.find(self._delimiter)
        while start >= 0:
            for rest in self._readings(name[start + len(self._delimiter) :]):
                yield (name[:start], *rest)
            start = name.find(self._delimiter, start + 1)

    def apply(self, rows: Rows) -> None:
        if rows.is_mixed and any(pa.types.is_nested(c.type) for c in rows.columns.values()):
            rows.suspect_all()
        rows.suspect(rows.origins.with_empty_names())  # no delimiter follows an empty name
        found: dict[str, list[tuple[tuple[str, ...], pa.Array]]] = {}
        for path, column in _leaves((), rows.columns):
            if pa.types.is_map(column.type):
                rows.suspect_all()  # refused in a schema, flattened without one
            name = path[0] if len(path) == 1 else self._delimiter.join(path)
            if "" in path:
                rows.suspect_all()
            found.setdefault(name, []).append((path, column))
        rows.columns = {name: self._one(rows, some) for name, some in found.items()}

    def _one(self, rows: Rows, some: list[tuple[tuple[str, ...], pa.Array]]) -> pa.Array:
        """Return a flat field from all fields that get its name."""
        if rows.is_typed:
            if len(some) > 1:
                rows.suspect_all()
            return some[0][1]
        some = sorted(some, key=lambda one: one[1].null_count)
        chosen = some[0][1]
        held = valid(chosen)
        for _, other in some[1:]:
            if other.null_count == rows.count:
                continue
            more = valid(other)
            rows.suspect(held & more)
            held |= more
            if other.type != chosen.type:
                rows.suspect(more)
            else:
                chosen = pc.coalesce(chosen, other)
        if len(some) > 1 and held.any():
            rows.suspect(self._nulls_of_others(rows, held, [path for path, _ in some]))
        return chosen

    def _nulls_of_others(self, rows: Rows, held: Mask, paths: list[tuple[str, ...]]) -> Mask:
        """Return rows that may hold a null under another reading of a name that has a value."""
        hidden = rows.origins.with_null(held & ~rows.ambiguous)
        if not hidden.any():
            return hidden
        there = []
        for path in paths:
            rest = hidden
            for part in path:
                rest = rows.origins.with_name(part, rest)
            there.append(rest)
        found: Mask = np.sum(there, axis=0) > 1
        return found


def _leaves(
    path: tuple[str, ...], columns: Mapping[str, pa.Array]
) -> Iterator[tuple[tuple[str, ...], pa.Array]]:
    for name, column in columns.items():
        if pa.types.is_struct(column.type):
            yield from _leaves((*path, name), children(column))
        else:
            yield (*path, name), column


# ------------------------------------------------------------------ ParseJson


class ParseJson:
    """``ParseJson``: parses texts that are objects; other texts are ambiguous.

    Args:
        options: of the transformation.

    Attributes:
        names: of the record's fields that are read and written.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._source = path_of(options["field"])
        self._target = path_of(options["target"]) if options["target"] else self._source
        self._decoder: ScannedJson | None = None
        self._is_alone = self._is_read = False
        self.names = (self._source[0], self._target[0])

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        first, *rest = self._target
        fields = fields_of(type_at(wanted.fields.get(first), rest))
        evolves = wanted.evolves
        self._decoder = json_decoder(fields, report_unexpected=evolves, keeps=evolves)
        source = self._source
        known = wanted.fields.get(source[0])
        is_replaced = self._target == source or (known is None and not evolves)
        self._is_alone = len(source) == 1 and is_replaced and bool(fields)
        wanted.fields[source[0]] = with_type_at(known, source[1:], pa.string())

    def read_before(self) -> ScannedJson | None:
        """Return what decodes the texts within the record's decoder, if no other field needs them.

        No earlier step may read or change the field. Where that decoder decoded the texts, the
        column is a struct.
        """
        self._is_read = self._is_alone
        return self._decoder if self._is_alone else None

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        rows.lose_schema()
        column = at_path(rows.columns, self._source, rows.count)
        held = valid(column)
        if not held.any():
            return
        is_deep = max(len(self._source), len(self._target)) > 1
        if self._is_read and pa.types.is_struct(column.type):
            made, ambiguous = rows.columns.pop(self._source[0]), np.zeros(rows.count, np.bool_)
        elif not pa.types.is_string(column.type) or (rows.had_schema and is_deep):
            rows.suspect(held)
            return
        else:
            found = self._parsed(column, held)
            if found is None:
                rows.suspect(held)
                return
            made, ambiguous = found
        if self._target != self._source:
            own = at_path(rows.columns, self._target, rows.count)
            ambiguous |= valid(own) & ~held  # it stays where there is no text
        rows.suspect(ambiguous)
        # without a text no value is put, and no struct is made on the way to it
        rows.suspect(put_at(rows.columns, self._target, made, rows.count, makes=is_deep))
        if is_deep:
            rows.suspect(~held)

    def _parsed(self, column: pa.Array, held: Mask) -> tuple[pa.Array, Mask] | None:
        """Return the parsed texts, and ambiguous rows; None where no text is read."""
        assert self._decoder is not None
        places = np.flatnonzero(held)
        is_all = len(places) == len(held)
        texts = (column if is_all else column.take(pa.array(places))).cast(pa.binary())
        table, good, unexpected = together(list(self._decoder.decode(texts)), len(texts))
        ambiguous = held.copy()
        ambiguous[places[good]] = False
        ambiguous[places[unexpected]] = True
        if not table.num_columns or not len(good):
            return None
        columns = [one_chunk(c) for c in table.columns]
        whole = pa.StructArray.from_arrays(columns, names=table.column_names)
        if is_all and np.array_equal(good, places):
            return whole, ambiguous
        index = np.full(len(held), -1, np.int64)
        index[places[good]] = np.arange(len(good))
        return whole.take(pa.array(index, mask=index < 0)), ambiguous


# ------------------------------------------------------------------ Explode


def explode(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``Explode``."""
    return _Explode(options)


class _Explode:
    """Makes one row for each element of a list, or entry of a map."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._source = path_of(options["field"])
        self._target = path_of(options["element.field"]) if options["element.field"] else ()
        self._number = path_of(options["key.field"]) if options["key.field"] else ()
        self._keeps_empty, self._spreads = options["keep.empty"], options["spread"]

    def plan(self, wanted: ChainPlan) -> None:
        wanted.reads_text = True
        target = self._target or self._source
        fields = wanted.fields
        if self._number:
            if len(self._number) == 1:
                fields.pop(self._number[0], None)
            else:
                fields.setdefault(self._number[0], pa.struct([]))
        if self._spreads:
            element: pa.DataType = pa.struct(list(fields.items()))
        else:
            element = type_at(fields.get(target[0]), target[1:]) or pa.string()
        if len(target) == 1 and not self._spreads:
            fields.pop(target[0], None)
        first, *rest = self._source
        known = None if len(self._source) == 1 else fields.get(first)
        fields[first] = with_type_at(known, rest, pa.list_(element))

    def apply(self, rows: Rows) -> None:
        rows.lose_schema()
        paths = (self._source, self._target, self._number)
        column = at_path(rows.columns, self._source, rows.count)
        if rows.had_schema and any(len(path) > 1 for path in paths):
            rows.suspect_all()
        is_list = pa.types.is_list(column.type)
        if not is_list and not pa.types.is_map(column.type):
            rows.suspect(valid(column))
            column = pa.nulls(rows.count, pa.list_(pa.null()))
        if self._spreads and is_list and not pa.types.is_struct(column.type.value_type):
            rows.suspect(valid(column))
        sizes = np.where(valid(column), np.diff(column.offsets.to_numpy()), 0)
        rows.suspect(sizes > RECORDS_MAX)
        gone = rows.ambiguous | rows.dropped
        sizes = np.where(gone, 0, sizes).astype(np.int64)
        rows.refused.append(rows.origins.places[rows.ambiguous])
        empty = (sizes == 0) & ~gone if self._keeps_empty else np.zeros(rows.count, np.bool_)
        counts = sizes + empty
        total = int(counts.sum())
        if total * max(len(rows.columns), 1) > _CELLS_MAX and rows.count > 1:
            raise TooManyRows
        parents = np.repeat(np.arange(rows.count), counts)
        starts = column.offsets.to_numpy()[:-1].astype(np.int64)
        before = np.cumsum(counts) - counts
        number = np.arange(total) - before[parents]
        is_empty = empty[parents]
        self._multiply(rows, parents)
        places = starts[parents] + number
        chosen = pa.array(np.where(is_empty, 0, places), mask=is_empty)
        if is_list:
            element = column.values.take(chosen)
            key: pa.Array = pa.array(number, mask=is_empty)
        else:
            element, key = _entries(column, chosen)
        self._put(rows, element)
        if self._number:
            rows.suspect(put_at(rows.columns, self._number, key, rows.count, makes=True))

    def _multiply(self, rows: Rows, parents: Positions) -> None:
        """Repeat every row as often as its position occurs."""
        chosen = pa.array(parents)
        rows.columns = {name: column.take(chosen) for name, column in rows.columns.items()}
        repeat_keys(rows, chosen)
        rows.count = len(parents)
        rows.origins = rows.origins.picked(parents)
        rows.ambiguous = np.zeros(rows.count, np.bool_)
        rows.dropped = np.zeros(rows.count, np.bool_)
        rows.topics = None if rows.topics is None else rows.topics.take(chosen)
        sizes = np.bincount(rows.origins.places)
        rows.suspect(sizes[rows.origins.places] > RECORDS_MAX)

    def _put(self, rows: Rows, element: pa.Array) -> None:
        """Put the element into its place, or its fields into the record."""
        target = self._target or self._source
        if pa.types.is_duration(element.type):
            element = element.cast(pa.int64())
        if target != self._source or self._spreads:
            nothing = pa.nulls(rows.count)
            rows.suspect(put_at(rows.columns, self._source, nothing, rows.count, makes=True))
        if not (self._spreads and pa.types.is_struct(element.type)):
            rows.suspect(put_at(rows.columns, target, element, rows.count, makes=True))
            return
        there = valid(element)
        if target != self._source:  # an element that is null is put there, too
            own = at_path(rows.columns, target, rows.count)
            rows.suspect(~there & valid(own))
        for name, column in children(element).items():
            if pa.types.is_duration(column.type):
                column = column.cast(pa.int64())  # noqa: PLW2901 - the same numbers
            rows.columns[name] = self._covered(rows, rows.columns.get(name), column, there)

    def _covered(self, rows: Rows, own: pa.Array | None, new: pa.Array, there: Mask) -> pa.Array:
        """Return a field of the elements that covers one of the record."""
        if own is None or own.null_count == rows.count:
            return new
        if rows.had_schema:
            if own.type == new.type:
                return pc.if_else(pa.array(there), new, own)
            rows.suspect(valid(own) & ~there)
            return new
        held, covered = valid(own), valid(new)
        # a null in the element covers the record's value, a missing field does not
        rows.suspect(rows.origins.with_null(held & there & ~covered))
        if own.type != new.type:
            rows.suspect(held & ~covered)
            return new
        return pc.coalesce(new, own)


def _entries(column: pa.Array, chosen: pa.Array) -> tuple[pa.Array, pa.Array]:
    return column.items.take(chosen), column.keys.take(chosen)
