"""Steps that insert, rename, copy, cast, mask and extract fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from connect.java_compat.java_numbers import decimal_of
from connect.records.transforms.cast import parsed_spec
from connect.records.transforms.field_path import steps_of
from connect.records.transforms.insert_field import insertions
from connect.records.transforms.kafka_metadata_transform import external_of
from connect.records.transforms.replace_field import renames_of
from worker.transforms.casts import cast_column, cast_guess, mask_column
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Fields,
    Mask,
    Rows,
    child,
    children,
    fields_of,
    is_struct,
    struct_of,
    valid,
)

_INSTANT: Final = pa.timestamp("ms", "UTC")


class NoColumnStep:
    """A transformation of headers, which changes no column."""

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del wanted

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        del rows


class Metadata:
    """Changes name or version of a schema, which no column holds."""

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        del wanted

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if not rows.is_typed:
            rows.suspect_all()


class _Insert:
    """Inserts fields that do not come from the value."""

    def __init__(
        self,
        made: Mapping[str, Callable[[Rows], pa.Array]],
        *,
        timed: bool,
        instants: frozenset[str] = frozenset(),
    ) -> None:
        self._made = made
        self._is_timed = timed
        self._instants = instants

    def plan(self, wanted: ChainPlan) -> None:
        for name in self._made:
            wanted.fields.pop(name, None)

    def apply(self, rows: Rows) -> None:
        if rows.is_typed and not rows.columns.keys().isdisjoint(self._made):
            rows.suspect_all()  # two fields of one name
            return
        for name, make in self._made.items():
            column = make(rows)
            is_instant = rows.is_typed and name in self._instants
            rows.columns[name] = column.cast(_INSTANT) if is_instant else column
        if self._is_timed and not rows.is_typed:
            stamps = rows.origins.column("timestamp")
            if stamps.null_count:
                rows.suspect(~valid(stamps))


def _constant(text: str | None) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.repeat(pa.scalar(text, pa.string()), rows.count)


_ORIGINS: Final[Mapping[str, Callable[[Rows], pa.Array]]] = {
    "topic": lambda rows: rows.current_topics,
    "partition": lambda rows: rows.origins.column("partition"),
    "offset": lambda rows: rows.origins.column("offset"),
    "timestamp": lambda rows: rows.origins.column("timestamp"),
}


def insert_field(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``InsertField``."""
    wanted = insertions(options)
    made = {
        each.name: _ORIGINS.get(each.kind) or _constant(options["static.value"]) for each in wanted
    }
    if len(made) < len(wanted):
        return None
    instants = frozenset(each.name for each in wanted if each.kind == "timestamp")
    return _Insert(made, timed=bool(instants), instants=instants)


def kafka_metadata(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``KafkaMetadataTransform``."""
    name, external = options["field_name"], external_of(options["external_field"])
    made = dict(_ORIGINS)
    if external is not None:
        made[external[0]] = _constant(external[1])
    if not options["nested"]:
        return _Insert({f"{name}_{n}": make for n, make in made.items()}, timed=True)

    def group(rows: Rows) -> pa.Array:
        return pa.StructArray.from_arrays([make(rows) for make in made.values()], names=list(made))

    return _Insert({name: group}, timed=True)


class Replace:
    """Drops and renames fields."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._exclude = frozenset(options["exclude"])
        self._include = frozenset(options["include"])
        self._renames = renames_of(options["renames"])

    def _source(self, name: str) -> str | None:
        olds = [old for old, new in self._renames.items() if new == name and self._keeps(old)]
        if olds:
            return olds[0]
        return name if self._keeps(name) and name not in self._renames else None

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        fields: Fields = {}
        for name, kind in wanted.fields.items():
            source = self._source(name)
            if source is not None:
                fields[source] = kind
        # a field takes the name of another: their order in the record decides
        kept = [new for old, new in self._renames.items() if self._keeps(old)]
        clashes = {new for new in kept if kept.count(new) > 1}
        clashes |= {new for new in kept if self._keeps(new) and new not in self._renames}
        wanted.shadowed |= clashes & wanted.fields.keys()
        wanted.fields = fields

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        kept = {name: column for name, column in rows.columns.items() if self._keeps(name)}
        rows.columns = {self._renames.get(name, name): column for name, column in kept.items()}
        if rows.is_typed and len(rows.columns) < len(kept):
            rows.suspect_all()  # two fields of one name


class ToHeaders:
    """Moves or copies fields to headers, which no column holds: the fields are dropped or stay."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._names = frozenset(options["fields"])
        self._moved = self._names if options["operation"] == "move" else frozenset()

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        wanted.fields = {n: kind for n, kind in wanted.fields.items() if n not in self._moved}

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if rows.is_typed and not rows.columns.keys() >= self._names:
            rows.suspect_all()
        rows.columns = {n: column for n, column in rows.columns.items() if n not in self._moved}


class Hoist:
    """Puts the whole value into one field."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name = options["field"]

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        kind = wanted.fields.get(self._name)
        wanted.fields, wanted.whole = fields_of(kind), None if is_struct(kind) else kind

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        column = rows.whole
        if column is None:
            column = struct_of(rows.columns, rows.count, rows.absent)
        rows.columns, rows.whole, rows.absent = {self._name: column}, None, None


class Copy:
    """Copies a field to another one."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._source, self._target = options["source.field"], options["target.field"]

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        guess = wanted.fields.pop(self._target, pa.string())
        wanted.fields.setdefault(self._source, guess)

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        if rows.is_typed and (self._source not in rows.columns or self._target in rows.columns):
            rows.suspect_all()
        rows.columns[self._target] = rows.column(self._source)


class Each:
    """Changes some fields, each without the others.

    Args:
        guesses: the type to decode each field as, by the type requested of it.
        change: changes a field, given its name and column; returns the ambiguous rows, too.
    """

    def __init__(
        self,
        guesses: Mapping[str, Callable[[pa.DataType | None], pa.DataType]],
        change: Callable[[str, pa.Array], tuple[pa.Array, Mask | None]],
    ) -> None:
        self._guesses = guesses
        self._change = change

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        for name, guess in self._guesses.items():
            wanted.fields[name] = guess(wanted.fields.get(name))

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        for name in self._guesses:
            if rows.is_typed and name not in rows.columns:
                continue
            column = rows.column(name)
            if rows.is_typed:
                column = _plain(column)
            rows.columns[name], ambiguous = self._change(name, column)
            rows.suspect(ambiguous)


def _plain(column: pa.Array) -> pa.Array:
    """Return whole numbers of a schema as those without a schema."""
    kind = column.type
    is_whole = pa.types.is_int32(kind) or pa.types.is_duration(kind)
    return column.cast(pa.int64()) if is_whole else column


def cast(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``Cast``."""
    kinds, whole = parsed_spec(options["spec"])
    if whole is not None or "float32" in kinds.values():
        return None
    guesses = {name: cast_guess(kind) for name, kind in kinds.items()}
    return Each(guesses, lambda name, column: cast_column(column, kinds[name]))


class _Mask(Each):
    """Replaces values; a struct with a schema has no empty value.

    Args:
        replacement: of values. One of a byte fits every number, any other is cut to the size in the
            schema.
    """

    def __init__(self, names: Sequence[str], replacement: str | None) -> None:
        guesses = dict.fromkeys(names, _not_decimal)
        super().__init__(guesses, lambda _, column: mask_column(column, replacement))
        self._is_cut = replacement is not None and not _is_byte(replacement)

    def apply(self, rows: Rows) -> None:
        if rows.is_typed and self._is_cut:
            for name in rows.columns.keys() & self._guesses.keys():
                if pa.types.is_int32(rows.columns[name].type):
                    rows.suspect(valid(rows.columns[name]))
        if rows.had_schema:
            for name in self._guesses:
                column = rows.column(name)
                if pa.types.is_nested(column.type):
                    rows.suspect(valid(column))
        Each.apply(self, rows)


def mask(options: Mapping[str, Any]) -> ColumnStep:
    """Return the step of ``MaskField``."""
    return _Mask(options["fields"], options["replacement"])


def _is_byte(text: str) -> bool:
    try:
        return -128 <= decimal_of(text) < 128
    except ValueError:
        return False


def _not_decimal(guess: pa.DataType | None) -> pa.DataType:
    """Return a guess under which integers stay integers."""
    if guess is None or pa.types.is_null(guess):
        return pa.string()
    return pa.int64() if pa.types.is_decimal(guess) else guess


class Extract:
    """Replaces the value by a struct's fields."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._path = steps_of(options["field"], options["field.syntax.version"])

    def plan(self, wanted: ChainPlan) -> None:
        """See ``ColumnStep``."""
        kind = pa.struct(list(wanted.fields.items()))
        for name in reversed(self._path[1:]):
            kind = pa.struct([(name, kind)])
        wanted.fields = {self._path[0]: kind}

    def apply(self, rows: Rows) -> None:
        """See ``ColumnStep``."""
        column = rows.column(self._path[0])
        for name in self._path[1:]:
            column = child(column, name)
        if rows.is_mixed:
            rows.suspect_all()
        if not pa.types.is_struct(column.type):
            rows.columns = {}
            rows.suspect_all()
            return
        rows.columns = children(column)
        if column.null_count:
            rows.suspect(~valid(column))
