"""Conditions on rows: JMESPath expressions over the JSON value of a row, by columns.

Rules of this file:
- The result is that of the expression over the row's JSON text. Comparisons of fields with
  literals, their combinations and tests of fields are computed by columns. All other expressions
  run on each row's value.
- A condition that fails for a row does not hold for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from jmespath.exceptions import JMESPathError

from connect.records.transforms.jmespath_transform import compiled, with_functions
from worker.outputs.json_columns import json_objects, texts

Mask = npt.NDArray[np.bool_]
Node = Mapping[str, Any]

_EXACT: Final = 2**53
_INT64: Final = (-(2**63), 2**63 - 1)
_COMPARISONS: Final[Mapping[str, Callable[..., pa.Array]]] = {
    "eq": pc.equal,
    "lt": pc.less,
    "lte": pc.less_equal,
    "gt": pc.greater,
    "gte": pc.greater_equal,
}
_MIRRORED: Final = {"eq": "eq", "ne": "ne", "lt": "gt", "lte": "gte", "gt": "lt", "gte": "lte"}


class _NoColumnForm(Exception):  # noqa: N818 - a result about an expression
    """The expression must run on each row's value."""


class Condition:
    """A compiled condition.

    Args:
        text: JMESPath expression.
    """

    def __init__(self, text: str) -> None:
        self._compiled = compiled("where", text)
        self._options = with_functions()
        self._node: Node = self._compiled.parsed

    def holds(self, columns: Sequence[pa.Array], fields: Sequence[pa.Field], count: int) -> Mask:
        """Return for which rows the condition holds.

        Args:
            columns: of the rows, one chunk each.
            fields: their names, and the names inside.
            count: rows.
        """
        scope = _Scope(columns, fields, count)
        try:
            return _truth(self._node, scope)
        except _NoColumnForm:
            rows = json_objects(columns, fields, count).to_pylist()
            return np.array([self._holds_for(json.loads(row)) for row in rows], np.bool_)

    def _holds_for(self, value: Any) -> bool:
        try:
            result = self._compiled.search(value, options=self._options)
        except (JMESPathError, TypeError, ValueError, ArithmeticError, RecursionError):
            return False
        return not (result is None or result is False or result in ("", [], {}))


class _Scope:
    """The fields that names refer to."""

    def __init__(self, columns: Sequence[pa.Array], fields: Sequence[pa.Field], count: int) -> None:
        self.count = count
        self._columns = {f.name: (c, f.type) for c, f in zip(columns, fields, strict=True)}

    def field(self, path: Sequence[str]) -> pa.Array:
        column, named = self._columns.get(path[0], (pa.nulls(self.count), pa.null()))
        for name in path[1:]:
            if pa.types.is_map(named):
                raise _NoColumnForm
            index = named.get_field_index(name) if pa.types.is_struct(named) else -1
            if index < 0:
                return pa.nulls(self.count)
            column, named = pc.struct_field(column, [index]), named.field(index).type
        return column


def _truth(node: Node, scope: _Scope) -> Mask:
    kind, inner = node["type"], node.get("children", [])
    if kind == "and_expression":
        return _truth(inner[0], scope) & _truth(inner[1], scope)
    if kind == "or_expression":
        return _truth(inner[0], scope) | _truth(inner[1], scope)
    if kind == "not_expression":
        return ~_truth(inner[0], scope)
    if kind == "comparator":
        name, (left, right) = node["value"], inner
        if left["type"] == "literal":
            name, left, right = _MIRRORED[name], right, left
        if right["type"] != "literal":
            raise _NoColumnForm
        return _compared(name, scope.field(_path(left)), right["value"])
    return _is_true(scope.field(_path(node)))


def _path(node: Node) -> list[str]:
    kind = node["type"]
    if kind == "field":
        return [node["value"]]
    if kind == "subexpression":
        return [name for part in node["children"] for name in _path(part)]
    raise _NoColumnForm


def _is_true(column: pa.Array) -> Mask:
    """Return values that are true: neither null, false, an empty text, list nor object."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return _mask(column)
    if pa.types.is_map(kind) or pa.types.is_struct(kind):
        raise _NoColumnForm
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _mask(pc.greater(pc.list_value_length(column), 0))
    if _is_number(kind):  # NaN is null in JSON
        return _valid(_numbers(column))
    return _mask(pc.greater(pc.utf8_length(texts(column)), 0))


def _compared(name: str, column: pa.Array, literal: Any) -> Mask:
    """Compare with a literal; values of another kind are not equal, less or greater."""
    if name == "ne":
        return ~_compared("eq", column, literal)
    kind = column.type
    nothing = np.zeros(len(column), np.bool_)
    if literal is None:
        if name != "eq":
            return nothing
        return ~_valid(_numbers(column) if _is_number(kind) else column)
    if pa.types.is_nested(kind) or isinstance(literal, (list, dict)):
        raise _NoColumnForm
    compare = _COMPARISONS[name]
    if isinstance(literal, bool):
        is_same = pa.types.is_boolean(kind) and name == "eq"
        return _mask(compare(column, literal)) if is_same else nothing
    if isinstance(literal, str):
        if _is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
            return nothing
        return _mask(compare(texts(column), pa.scalar(literal, pa.large_string())))
    return _with_number(name, column, literal) if _is_number(kind) else nothing


def _with_number(name: str, column: pa.Array, literal: float) -> Mask:
    values = _numbers(column)
    if pa.types.is_floating(values.type):
        if abs(literal) > _EXACT:
            raise _NoColumnForm
        return _mask(_COMPARISONS[name](values, float(literal)))
    whole = math.floor(literal)
    if not _INT64[0] < whole < _INT64[1]:
        raise _NoColumnForm
    if whole == literal:
        return _mask(_COMPARISONS[name](values, pa.scalar(whole, pa.int64())))
    if name == "eq":
        return np.zeros(len(column), np.bool_)
    above = name in ("gt", "gte")  # of a number between two whole ones
    return _mask(_COMPARISONS["gt" if above else "lte"](values, pa.scalar(whole, pa.int64())))


def _numbers(column: pa.Array) -> pa.Array:
    """Return numbers as JSON has them, in 64 bits."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    # as their texts are read: the nearest double of all digits
    values = column.cast(pa.large_string()).cast(pa.float64())
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _mask(column: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)  # noqa: FBT003 - Arrow's
    return mask


def _valid(column: pa.Array) -> Mask:
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask
