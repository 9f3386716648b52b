"""Conditions by columns, compared with the same expression over the JSON value of each row."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from functools import cache
from typing import Any

import jmespath
import pyarrow as pa
import pytest
from jmespath.exceptions import JMESPathError

from worker.outputs import conditions
from worker.outputs.conditions import Condition
from worker.outputs.json_columns import json_objects

_INNER = pa.struct([("a", pa.int64()), ("b", pa.large_string())])
TABLE = pa.table(
    {
        "id": pa.array([1, 2, None, -7, 0, 2**62 + 1], pa.int64()),
        "small": pa.array([1, None, 3, 0, -1, 2**31 - 1], pa.int32()),
        "name": pa.array(["x", "", None, "é", "10", "y"], pa.large_string()),
        "amount": pa.array([1.0, 1000.5, math.nan, None, 0.0, -3.0], pa.float64()),
        "rate": pa.array([0.1, None, 2.5, 1e30, math.inf, 0.0], pa.float32()),
        "price": pa.array([*map(decimal.Decimal, ("1.10", "0", "-3")), None] + [None] * 2),
        "ok": pa.array([True, False, None, True, False, True]),
        "inner": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": ""}] * 2, _INNER),
        "tags": pa.array([["a"], [], None, [None], ["a", "b"], []], pa.list_(pa.string())),
        "map": pa.array(
            [[("k", "v")], [], None, [("k", None)], [], []], pa.map_(pa.string(), pa.string())
        ),
        "ts": pa.array([dt.datetime(2026, 1, n, tzinfo=dt.UTC) for n in range(1, 7)]),
        "raw": pa.array([b"a", b"", None, b"b", b"c", b"d"], pa.binary()),
        "none": pa.nulls(6),
    }
).combine_chunks()
FIELDS = list(TABLE.schema)
COLUMNS = [column.chunk(0) for column in TABLE.columns]
BY_COLUMNS = [
    *(
        f"{f} {op} {literal}"
        for f in TABLE.column_names
        if f not in ("inner", "tags", "map")
        for op in ("==", "!=", "<", ">=", ">", "<=")
        for literal in ("`1`", "'x'", "`true`", "`null`", "`1.5`", "`0`", "`0.1`")
    ),
    "`1` < id",
    "'x' == name",
    "id",
    "!id",
    "name",
    "amount",
    "rate",
    "price",
    "ok",
    "tags",
    "ts",
    "none",
    "raw",
    "missing",
    "inner.a == `1` && name",
    "inner.b || tags",
    "inner.missing == `null`",
    "name.x == 'a'",
    "ts >= '2026-01-03'",
    "ok == `false` || !(id > `1`)",
    "id == `4611686018427387905`",
]
BY_ROWS = [
    "contains(name, 'x')",
    "inner",
    "map.k == 'v'",
    "tags[0] == 'a'",
    'inner == `{"a": 1, "b": "x"}`',
    "length(tags) > `1`",
    "id == small",
    "amount > `1e300`",
    "starts_with(id, 'x')",
]


@cache
def json_rows() -> list[Any]:
    """Each row's JSON value."""
    return [json.loads(row) for row in json_objects(COLUMNS, FIELDS, len(TABLE)).to_pylist()]


def expected(text: str) -> list[bool]:
    """The expression over each row's JSON value; without a value where it fails."""
    held = []
    for row in json_rows():
        try:
            found = jmespath.search(text, row)
        except (JMESPathError, TypeError):
            found = None
        held.append(found not in (None, "", [], {}) and found is not False)
    return held


@pytest.mark.parametrize("text", BY_COLUMNS)
def test_a_condition_by_columns(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds for the rows for which the expression holds; no row is read alone."""
    wanted = expected(text)
    monkeypatch.delattr(conditions, "json_objects")
    assert Condition(text).holds(COLUMNS, FIELDS, len(TABLE)).tolist() == wanted


@pytest.mark.parametrize("text", BY_ROWS)
def test_any_other_condition_runs_on_each_row(text: str) -> None:
    """With the same result; where it fails, it does not hold."""
    assert Condition(text).holds(COLUMNS, FIELDS, len(TABLE)).tolist() == expected(text)
