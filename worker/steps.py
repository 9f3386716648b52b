"""Transformations as operations on columns.

Rules of this file:
- A step gives exactly what the reference's transformation gives, or calls the row doubtful, or
  there is no step: then the whole chain goes record by record.
- Steps see objects without schema, never tombstones; null and missing fields are the same here, so
  a step exists only where they are the same to the reference, too. Where a field of a name would
  decide, rows whose text holds that name are left to the reference (``Plan.shadowed``).
- Doubt about a row outweighs a later drop of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connect.config.connector import ConnectorConfig
from connect.errors import RecordError
from connect.records import SinkRecord
from connect.transforms import registry
from connect.transforms.base import typed_options
from connect.transforms.cast import parsed_spec
from connect.transforms.chain import Link, link_of
from connect.transforms.field_path import steps_of
from connect.transforms.insert_field import insertions
from connect.transforms.kafka_metadata_transform import external_of
from connect.transforms.replace_field import renames_of
from worker.casts import cast_column, cast_guess, mask_column
from worker.columns import nulls
from worker.shapes import extra_rows
from worker.step_rows import Fields, Mask, Plan, Rows, Step

# ------------------------------------------------------------------ steps


class _Nothing:
    """A transformation that no column shows: of headers."""

    def plan(self, wanted: Plan) -> None:
        del wanted

    def apply(self, rows: Rows) -> None:
        del rows


class _Insert:
    """Fields from outside of the value."""

    def __init__(self, made: Mapping[str, Callable[[Rows], pa.Array]], *, timed: bool) -> None:
        self._made = made
        self._is_timed = timed

    def plan(self, wanted: Plan) -> None:
        for name in self._made:
            wanted.fields.pop(name, None)

    def apply(self, rows: Rows) -> None:
        for name, make in self._made.items():
            rows.columns[name] = make(rows)
        if self._is_timed:
            stamps = rows.origins.column("timestamp")
            if stamps.null_count:
                rows.suspect(~stamps.is_valid().to_numpy(zero_copy_only=False))


def _constant(text: str | None) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.repeat(pa.scalar(text, pa.string()), rows.count)


_ORIGINS: Final[Mapping[str, Callable[[Rows], pa.Array]]] = {
    "topic": lambda rows: rows.current_topics,
    "partition": lambda rows: rows.origins.column("partition"),
    "offset": lambda rows: rows.origins.column("offset"),
    "timestamp": lambda rows: rows.origins.column("timestamp"),
}


def _insert_field(options: Mapping[str, Any]) -> Step:
    made = {
        each.name: _ORIGINS.get(each.kind) or _constant(options["static.value"])
        for each in insertions(options)
    }
    return _Insert(made, timed=bool(options["timestamp.field"]))


def _kafka_metadata(options: Mapping[str, Any]) -> Step:
    name, external = options["field_name"], external_of(options["external_field"])
    made = dict(_ORIGINS)
    if external is not None:
        made[external[0]] = _constant(external[1])
    if not options["nested"]:
        return _Insert({f"{name}_{n}": make for n, make in made.items()}, timed=True)

    def group(rows: Rows) -> pa.Array:
        return pa.StructArray.from_arrays([make(rows) for make in made.values()], names=list(made))

    return _Insert({name: group}, timed=True)


class _Replace:
    """Fields left out and renamed."""

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

    def plan(self, wanted: Plan) -> None:
        fields: Fields = {}
        for name, kind in wanted.fields.items():
            source = self._source(name)
            if source is not None:
                fields[source] = kind
        # a field that gets the name of another: which wins depends on their order in the record
        kept = [new for old, new in self._renames.items() if self._keeps(old)]
        clashes = {new for new in kept if kept.count(new) > 1}
        clashes |= {new for new in kept if self._keeps(new) and new not in self._renames}
        wanted.shadowed |= clashes & wanted.fields.keys()
        wanted.fields = fields

    def apply(self, rows: Rows) -> None:
        rows.columns = {
            self._renames.get(name, name): column
            for name, column in rows.columns.items()
            if self._keeps(name)
        }


class _Copy:
    """A field beside another."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._source, self._target = options["source.field"], options["target.field"]

    def plan(self, wanted: Plan) -> None:
        guess = wanted.fields.pop(self._target, pa.string())
        wanted.fields.setdefault(self._source, guess)

    def apply(self, rows: Rows) -> None:
        rows.columns[self._target] = rows.column(self._source)


class _Each:
    """Some fields, each by itself."""

    def __init__(
        self,
        guesses: Mapping[str, Callable[[pa.DataType | None], pa.DataType]],
        change: Callable[[str, pa.Array], tuple[pa.Array, Mask | None]],
    ) -> None:
        self._guesses = guesses
        self._change = change

    def plan(self, wanted: Plan) -> None:
        for name, guess in self._guesses.items():
            wanted.fields[name] = guess(wanted.fields.get(name))

    def apply(self, rows: Rows) -> None:
        for name in self._guesses:
            rows.columns[name], doubt = self._change(name, rows.column(name))
            rows.suspect(doubt)


def _cast(options: Mapping[str, Any]) -> Step | None:
    kinds, whole = parsed_spec(options["spec"])
    if whole is not None or "float32" in kinds.values():
        return None
    guesses = {name: cast_guess(kind) for name, kind in kinds.items()}
    return _Each(guesses, lambda name, column: cast_column(column, kinds[name]))


def _mask(options: Mapping[str, Any]) -> Step:
    replacement = options["replacement"]
    guesses = dict.fromkeys(options["fields"], _not_decimal)
    return _Each(guesses, lambda _, column: mask_column(column, replacement))


def _not_decimal(guess: pa.DataType | None) -> pa.DataType:
    """A guess under which integers stay what they are."""
    if guess is None or pa.types.is_null(guess):
        return pa.string()
    return pa.int64() if pa.types.is_decimal(guess) else guess


class _Extract:
    """A struct's fields in place of all."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._path = steps_of(options["field"], options["field.syntax.version"])

    def plan(self, wanted: Plan) -> None:
        kind = pa.struct(list(wanted.fields.items()))
        for name in reversed(self._path[1:]):
            kind = pa.struct([(name, kind)])
        wanted.fields = {self._path[0]: kind}

    def apply(self, rows: Rows) -> None:
        column = rows.column(self._path[0])
        for name in self._path[1:]:
            place = column.type.get_field_index(name) if pa.types.is_struct(column.type) else -1
            column = pc.struct_field(column, [place]) if place >= 0 else pa.nulls(rows.count)
        if not pa.types.is_struct(column.type):
            rows.columns = {}
            rows.suspect(np.ones(rows.count, np.bool_))
            return
        rows.columns = {f.name: pc.struct_field(column, [i]) for i, f in enumerate(column.type)}
        if column.null_count:
            rows.suspect(~column.is_valid().to_numpy(zero_copy_only=False))


class _Topics:
    """Another topic, told by the reference for each distinct one."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def plan(self, wanted: Plan) -> None:
        del wanted

    def apply(self, rows: Rows) -> None:
        codes, names = _distinct(rows.current_topics)
        found: list[str | None] = []
        for name in names:
            try:
                changed = self._link.apply(SinkRecord(name, 0, 0, None, value={}))
                found.append(changed.topic if isinstance(changed, SinkRecord) else None)
            except RecordError:
                found.append(None)
        topics = pa.array(found, pa.string()).take(pa.array(codes))
        if topics.null_count:
            rows.suspect(~topics.is_valid().to_numpy(zero_copy_only=False))
            topics = topics.fill_null("")
        rows.topics = topics


class _Filter:
    """Rows out of which a predicate takes some; all of them without one."""

    def __init__(self, test: Callable[[SinkRecord], bool] | None) -> None:
        self._test = test

    def plan(self, wanted: Plan) -> None:
        del wanted

    def apply(self, rows: Rows) -> None:
        hit = np.ones(rows.count, np.bool_) if self._test is None else tested(self._test, rows)
        rows.dropped |= hit & ~rows.doubt


class _Conditional:
    """A step for the rows a predicate lets through; blocks with both kinds go record by record."""

    def __init__(self, inner: Step, test: Callable[[SinkRecord], bool]) -> None:
        self._inner = inner
        self._test = test

    def plan(self, wanted: Plan) -> None:
        before = dict(wanted.fields)
        self._inner.plan(wanted)
        wanted.fields = {**before, **wanted.fields}

    def apply(self, rows: Rows) -> None:
        hit = tested(self._test, rows) & ~rows.dropped
        if hit.any():
            self._inner.apply(rows)
            rows.suspect(~hit)


def tested(test: Callable[[SinkRecord], bool], rows: Rows) -> Mask:
    """A predicate's answer for each row, of records that are no tombstones."""
    codes, names = _distinct(rows.current_topics)
    answers = [test(SinkRecord(name, 0, 0, None, value={})) for name in names]
    return np.array(answers, np.bool_)[codes]


def _distinct(topics: pa.Array) -> tuple[npt.NDArray[np.int64], list[str]]:
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return codes, encoded.dictionary.to_pylist()


# ------------------------------------------------------------------ chains

_STEPS: Final[Mapping[str, Callable[[Mapping[str, Any]], Step | None]]] = {
    "Cast": _cast,
    "CopyValue": _Copy,
    "DropHeaders": lambda _: _Nothing(),
    "ExtractField": _Extract,
    "InsertField": _insert_field,
    "InsertHeader": lambda _: _Nothing(),
    "KafkaMetadataTransform": _kafka_metadata,
    "MaskField": _mask,
    "ReplaceField": _Replace,
}
COLUMN_STEPS: Final = frozenset({*_STEPS, "Filter", "RegexRouter"})


def steps_for(config: ConnectorConfig) -> tuple[Step, ...] | None:
    """A connector's transformations as steps; None when one of them is none."""
    found: list[Step] = []
    for each in config.transforms:
        link = link_of(each)
        step = _step(link, each.options)
        is_about_headers = each.predicate is not None and each.predicate.class_name.endswith(
            "HasHeaderKey"
        )
        if step is None or link.side == "key" or is_about_headers:
            return None
        if link.applies is not None and not isinstance(step, _Filter):
            step = _Conditional(step, link.applies)
        found.append(step)
    return tuple(found)


def _step(link: Link, options: Mapping[str, str]) -> Step | None:
    declared = link.declared
    if registry.find(declared.class_names[-1]) is None:
        return None  # a user's own may have any name
    if declared.name == "Filter":
        return _Filter(link.applies)
    if declared.name == "RegexRouter":
        return _Topics(link)
    make = _STEPS.get(declared.name)
    if make is None:
        return None
    return make(typed_options(declared.keys, options, families=declared.families))


def planned(steps: tuple[Step, ...], fields: Fields) -> Plan | None:
    """What must be decoded so that the fields come out of the steps.

    Returns:
        the plan; None when a name decides that an earlier step may have made: texts do not tell.
    """
    plan = Plan(dict(fields))
    for place in reversed(range(len(steps))):
        before = len(plan.shadowed)
        steps[place].plan(plan)
        makes_names = any(not isinstance(s, _Nothing | _Filter | _Topics) for s in steps[:place])
        if len(plan.shadowed) > before and makes_names:
            return None
    return plan


def applied(steps: tuple[Step, ...], rows: Rows, fields: Fields) -> pa.Table:
    """Run the steps; doubt, drops and topics are left in the rows.

    Returns:
        what came out, fields that did not as nulls.
    """
    for step in steps:
        step.apply(rows)
    for name, kind in fields.items():
        if name not in rows.columns:
            rows.columns[name] = nulls(rows.count, kind)
    return pa.Table.from_arrays(list(rows.columns.values()), names=list(rows.columns))


def unknown_rows(table: pa.Table, fields: Fields) -> Mask:
    """Rows with a value in a field that no table has, at any depth."""
    names = [
        name
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
        if name not in fields
        or (pa.types.is_struct(kind) and pa.types.is_struct(fields[name]) and kind != fields[name])
    ]
    return extra_rows(table.select(names), pa.schema(list(fields.items())))
