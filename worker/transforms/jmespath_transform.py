"""``Jmespath`` by columns: paths, indexes, structs of them, comparisons, and the added functions.

Rules of this file:
- An expression with any other part has no step.
- A function of a null is an error, and a double may not determine a number's text: these rows are
  ambiguous. So are rows with a null result that must not be set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jmespath
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.value_paths import steps as path_of
from worker.convert.scalars import ambiguous_doubles, integers, numbers
from worker.transforms.date_format import write_texts
from worker.transforms.rows import (
    ChainPlan,
    ColumnStep,
    Fields,
    Mask,
    Rows,
    as_mask,
    child,
    merged_types,
    put_at,
    struct_of,
    type_at,
    valid,
)

Node = Mapping[str, Any]

_ORIGINS: Final = ("topic", "partition", "offset", "timestamp")
_COMPARISONS: Final[Mapping[str, Callable[..., pa.Array]]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "lte": pc.less_equal,
    "gt": pc.greater,
    "gte": pc.greater_equal,
}
_TO_ISO: Final = {"epoch_seconds_to_iso8601": 1_000, "epoch_millis_to_iso8601": 1}
_WHOLE_SECONDS: Final = DateFormat("yyyy-MM-dd'T'HH:mm:ss'Z'")
_MILLISECONDS: Final = DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
_INT64_MAX: Final = 2**63 - 1


def jmespath_fields(options: Mapping[str, Any]) -> ColumnStep | None:
    """Return the step of ``Jmespath``; None where an expression has no column form."""
    expressions = {path_of(t): _parsed(e) for t, e in options["fields."].items()}
    where = _parsed(options["where"]) if options["where"] else None
    if not all(_has_form(node) for node in expressions.values()):
        return None
    if where is not None and not _is_test(where):
        return None
    keeps, sets_null = bool(options["keep"]), bool(options["set-null"])
    return _Expressions(expressions, where, keeps=keeps, sets_null=sets_null)


def _parsed(expression: str) -> Node:
    node: Node = jmespath.compile(expression).parsed
    return node


def _has_form(node: Node) -> bool:
    """Return whether an expression has a column form as a value."""
    kind, inner = node["type"], node.get("children", [])
    if kind == "field":
        return bool(node["value"] != "kafka")  # the whole of a record's origin, or an inner field
    if kind == "subexpression":
        return _is_origin(node) or (
            all(_has_form(part) for part in inner) and _first_name(node) != "kafka"
        )
    if kind == "index_expression":
        return inner[1]["type"] == "index" and _has_form(inner[0])
    if kind == "multi_select_dict":
        return all(_has_form(pair["children"][0]) for pair in inner)
    if kind == "function_expression" and node["value"] == "substr":
        return _has_form(inner[0]) and all(_is_count(part) for part in inner[1:])
    is_ours = kind == "function_expression" and (
        node["value"] in _TO_ISO or node["value"] == "epoch_millis_to_micro"
    )
    return is_ours and len(inner) == 1 and _has_form(inner[0])


def _is_test(node: Node) -> bool:
    """Return whether an expression has a column form as a condition."""
    kind, inner = node["type"], node.get("children", [])
    if kind in ("and_expression", "or_expression", "not_expression"):
        return all(_is_test(part) for part in inner)
    if kind == "comparator":
        return _has_form(inner[0]) and _is_simple_literal(inner[1])
    return _has_form(node)


def _is_count(node: Node) -> bool:
    return node["type"] == "literal" and type(node["value"]) is int and node["value"] >= 0


def _is_simple_literal(node: Node) -> bool:
    return node["type"] == "literal" and type(node["value"]) in (str, bool, int, float)


def _is_origin(node: Node) -> bool:
    inner = node.get("children", [])
    is_field = len(inner) == 2 and inner[0] == {"type": "field", "children": [], "value": "kafka"}
    return is_field and inner[1]["type"] == "field" and inner[1]["value"] in _ORIGINS


def _first_name(node: Node) -> Any:
    while node.get("children"):
        node = node["children"][0]
    return node.get("value")


# ------------------------------------------------------------------ what must be decoded


def _wanted(node: Node, leaf: pa.DataType, fields: Fields) -> None:
    """Request what an expression reads, given the type of its result."""
    kind, inner = node["type"], node.get("children", [])
    if kind == "comparator":
        value = inner[1]["value"]
        guess = {str: pa.string(), bool: pa.bool_(), int: pa.int64()}.get(type(value), pa.float64())
        _wanted(inner[0], guess, fields)
    elif kind.endswith("_expression") and kind[:-11] in ("and", "or", "not"):
        for part in inner:
            _wanted(part, pa.string(), fields)
    elif kind == "function_expression":
        _wanted(inner[0], pa.string() if node["value"] == "substr" else pa.int64(), fields)
    elif not _is_origin(node):
        asked_fields = _asked(node, leaf)
        for f in asked_fields:
            fields[f.name] = merged_types(fields.get(f.name), f.type)


def _asked(node: Node, leaf: pa.DataType) -> pa.DataType:
    """Return the struct in which an expression finds a leaf."""
    kind, inner = node["type"], node.get("children", [])
    if kind == "field":
        return pa.struct([(node["value"], leaf)])
    if kind == "subexpression":
        return _asked(inner[0], _asked(inner[1], leaf))
    if kind == "index_expression":
        return _asked(inner[0], pa.list_(leaf))
    if kind == "multi_select_dict":
        fields: Fields = {}
        for pair in inner:
            kept = type_at(leaf, (pair["value"],)) or pa.string()
            _wanted(pair["children"][0], kept, fields)
        return pa.struct(list(fields.items()))
    return pa.struct([])


# ------------------------------------------------------------------ values


@dataclass(frozen=True, slots=True)
class _Scope:
    """The fields that names refer to: those of the value, or of a struct column."""

    rows: Rows
    columns: Mapping[str, pa.Array] | None
    inner: pa.Array | None = None

    def get(self, name: str) -> pa.Array:
        if self.columns is not None:
            column = self.columns.get(name)
            return pa.nulls(self.rows.count) if column is None else column
        return child(self.inner, name)


def _value(node: Node, scope: _Scope) -> pa.Array:
    kind, inner = node["type"], node.get("children", [])
    rows = scope.rows
    if kind == "field":
        return scope.get(node["value"])
    if _is_origin(node):
        name = inner[1]["value"]
        return rows.current_topics if name == "topic" else rows.origins.column(name)
    if kind == "subexpression":
        return _value(inner[1], _Scope(rows, None, _value(inner[0], scope)))
    if kind == "index_expression":
        return _item(_value(inner[0], scope), inner[1]["value"])
    if kind == "multi_select_dict":
        columns = {pair["value"]: _value(pair["children"][0], scope) for pair in inner}
        return struct_of(columns, rows.count, None if scope.inner is None else ~valid(scope.inner))
    argument = _value(inner[0], scope)
    rows.suspect(~valid(argument))
    if node["value"] == "substr":
        start, length = inner[1]["value"], inner[2]["value"]
        if not pa.types.is_string(argument.type):
            rows.suspect_all()
            return pa.nulls(rows.count, pa.string())
        return pc.utf8_slice_codeunits(argument, start, start + length)
    return _of_number(rows, argument, node["value"])


def _of_number(rows: Rows, column: pa.Array, name: str) -> pa.Array:
    """Apply an added function to whole numbers."""
    if not pa.types.is_integer(column.type):
        rows.suspect_all()
        return pa.nulls(rows.count)
    whole = integers(column.cast(pa.int64()))
    factor = _TO_ISO.get(name, 1_000)
    outside = np.abs(whole) > _INT64_MAX // factor
    rows.suspect(outside)
    null = ~valid(column)
    scaled = np.where(outside, 0, whole) * factor
    if name not in _TO_ISO:
        return pa.array(scaled, mask=null)
    texts, ambiguous = write_texts(_MILLISECONDS, scaled, null)
    short, _ = write_texts(_WHOLE_SECONDS, scaled, null)
    rows.suspect(ambiguous)
    return pc.if_else(pa.array(scaled % 1000 == 0), short, texts)


def _item(column: pa.Array, index: int) -> pa.Array:
    """Return an element of each list, null where there is none."""
    if not pa.types.is_list(column.type):
        return pa.nulls(len(column))
    offsets = column.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    position = index if index >= 0 else sizes + index
    is_present = valid(column) & (position >= 0) & (position < sizes)
    return column.values.take(
        pa.array(np.where(is_present, offsets[:-1] + position, 0), mask=~is_present)
    )


# ------------------------------------------------------------------ conditions


def _truth(node: Node, scope: _Scope) -> Mask:
    kind, inner = node["type"], node.get("children", [])
    if kind == "and_expression":
        return _truth(inner[0], scope) & _truth(inner[1], scope)
    if kind == "or_expression":
        return _truth(inner[0], scope) | _truth(inner[1], scope)
    if kind == "not_expression":
        return ~_truth(inner[0], scope)
    if kind == "comparator":
        return _compared(node["value"], _value(inner[0], scope), inner[1]["value"], scope.rows)
    column = _value(node, scope)
    if pa.types.is_boolean(column.type):
        return as_mask(column)
    if pa.types.is_string(column.type):
        return as_mask(pc.greater(pc.binary_length(column), 0))
    if pa.types.is_nested(column.type):  # an empty one is false
        scope.rows.suspect(valid(column))
    elif not pa.types.is_null(column.type):  # zero depends on its place in the expression
        zero = pa.scalar(0, pa.int64()).cast(column.type) if _is_number(column.type) else None
        scope.rows.suspect(valid(column) if zero is None else as_mask(pc.equal(column, zero)))
    return valid(column)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _compared(name: str, column: pa.Array, literal: Any, rows: Rows) -> Mask:
    """Compare with a literal; values of another kind are not equal, less or greater."""
    is_number = type(literal) in (int, float)
    kind = column.type
    nothing = np.full(rows.count, name == "ne", np.bool_)
    if pa.types.is_null(kind):
        return nothing
    if type(literal) is bool and name in ("lt", "lte", "gt", "gte"):
        return np.zeros(rows.count, np.bool_)
    is_same = (
        (pa.types.is_string(kind) and type(literal) is str)
        or (pa.types.is_boolean(kind) and type(literal) is bool)
        or (pa.types.is_int64(kind) and type(literal) is int and abs(literal) <= _INT64_MAX)
    )
    if pa.types.is_float64(kind) and is_number and abs(literal) < 2**53:
        rows.suspect(ambiguous_doubles(numbers(column, 1.0)))
        is_same = True
    if not is_same:
        is_other = pa.types.is_string(kind) or pa.types.is_boolean(kind)
        if not is_other or type(literal) is bool:
            rows.suspect(valid(column))
        return nothing
    mask = as_mask(_COMPARISONS[name](column, pa.scalar(literal, kind)))
    return mask | ~valid(column) if name == "ne" else mask


# ------------------------------------------------------------------ the step


class _Expressions:
    """Computes fields by expressions, and drops rows for which a condition does not hold."""

    def __init__(
        self,
        fields: Mapping[tuple[str, ...], Node],
        where: Node | None,
        *,
        keeps: bool,
        sets_null: bool,
    ) -> None:
        self._fields = fields
        self._where = where
        self._keeps = keeps
        self._sets_null = sets_null

    def plan(self, chain_plan: ChainPlan) -> None:
        before = dict(chain_plan.fields)
        if self._fields and not self._keeps:
            chain_plan.fields = {}
        for target in self._fields:
            if len(target) == 1:
                chain_plan.fields.pop(target[0], None)
        for target, node in self._fields.items():
            kind = type_at(before.get(target[0]), target[1:]) or pa.string()
            _wanted(node, kind, chain_plan.fields)
        if self._where is not None:
            _wanted(self._where, pa.string(), chain_plan.fields)

    def apply(self, rows: Rows) -> None:
        scope = _Scope(rows, dict(rows.columns))
        if self._where is not None:
            rows.drop(~_truth(self._where, scope))
        if not self._fields:
            return
        rows.lose_schema()
        scope = _Scope(rows, dict(rows.columns))
        columns = {target: _value(node, scope) for target, node in self._fields.items()}
        if not self._keeps:
            rows.columns = {}
        for target, column in columns.items():
            if not self._sets_null:  # the field may have a value, which was not decoded
                rows.suspect(~valid(column))
            if rows.had_schema and (pa.types.is_nested(column.type) or len(target) > 1):
                rows.suspect_all()  # the structs inside become maps
            if pa.types.is_float32(column.type):
                column = column.cast(pa.float64())  # noqa: PLW2901 - JMESPath's numbers
            rows.suspect(put_at(rows.columns, target, column, rows.count, makes=True))
