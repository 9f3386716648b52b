"""JSON texts of columns, compared with Python's own JSON."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import uuid

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.outputs.json_columns import json_objects, json_values, texts

_INNER = pa.struct([("a", pa.int64()), ("b é", pa.large_string())])
VALUES = {
    "text": (pa.large_string(), ["a", None, 'q"\\ \n\t\x01 \u2028 é', ""]),
    "short text": (pa.string(), ["a", None, "\x00"]),
    "int": (pa.int32(), [1, None, -(2**31)]),
    "long": (pa.int64(), [2**63 - 1, None]),
    "bool": (pa.bool_(), [True, None, False]),
    "double": (pa.float64(), [0.1, 1e300, -0.5, None]),
    "lists": (pa.large_list(pa.large_string()), [["a", None, '"'], [], None, ["b"]]),
    "structs": (_INNER, [{"a": 1, "b é": "x"}, None, {"a": None, "b é": None}]),
    "lists of structs": (pa.list_(_INNER), [[{"a": 1, "b é": "x"}, None], None, []]),
    "nothing": (pa.null(), [None, None]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_column_reads_back_as_its_values(name: str) -> None:
    """Of each type that has a form in JSON; also a part of a column."""
    kind, values = VALUES[name]
    column = pa.array(values, kind)
    assert [json.loads(text) for text in json_values(column).to_pylist()] == values
    part = column.slice(1)
    assert [json.loads(text) for text in json_values(part).to_pylist()] == values[1:]


def test_maps_become_objects() -> None:
    """Keys are texts; null maps, and entries below them, leave nothing."""
    kind = pa.map_(pa.int32(), pa.large_string())
    column = pa.array([[(1, "a"), (2, None)], None, [], [(3, '"')]], kind)
    expected = [{"1": "a", "2": None}, None, {}, {"3": '"'}]
    for start in range(3):
        written = json_values(column.slice(start)).to_pylist()
        assert [json.loads(text) for text in written] == expected[start:]
    covered = pa.MapArray.from_arrays(
        [0, 1, 3], [1, 2, 3], ["a", "b", "c"], mask=pa.array([True, False])
    )
    written = json_values(covered).to_pylist()
    assert [json.loads(text) for text in written] == [None, {"2": "b", "3": "c"}]


def test_types_without_a_form_in_json() -> None:
    """Times are ISO 8601, binaries Base64, decimals numbers; NaN and infinity are null."""
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678, dt.UTC)
    columns = {
        '"2026-01-02T03:04:05.000678Z"': pa.array([moment], pa.timestamp("us", "UTC")),
        '"2026-01-02T03:04:05.000678"': pa.array([moment], pa.timestamp("us")),
        '"2026-01-02"': pa.array([moment.date()]),
        '"03:04:05.000678"': pa.array([moment.time()], pa.time64("us")),
        '"AAE="': pa.array([b"\x00\x01"], pa.large_binary()),
        "12.50": pa.array([decimal.Decimal("12.50")], pa.decimal128(10, 2)),
        "null": pa.array([math.nan]),
        f'"{uuid.UUID(int=7)}"': pa.array([uuid.UUID(int=7).bytes], pa.uuid()),
    }
    for text, column in columns.items():
        assert json_values(column).to_pylist() == [text]
    assert json_values(pa.array([math.inf, -math.inf])).to_pylist() == ["null"] * 2


def test_a_row_has_every_column() -> None:
    """Also null ones; a name is escaped."""
    fields = [pa.field("id", pa.int64()), pa.field('a"b', pa.string())]
    rows = json_objects([pa.array([1, None]), pa.array(["x", None])], fields, 2)
    assert rows.to_pylist() == ['{"id":1,"a\\"b":"x"}', '{"id":null,"a\\"b":null}']
    assert json_objects([], [], 2).to_pylist() == ["{}", "{}"]


def test_names_inside_are_those_of_the_field() -> None:
    """Files store some names in another form."""
    own = pa.struct([("b é", pa.list_(pa.struct([("c-d", pa.int64())])))])
    stored = pa.struct([("b_x20", pa.list_(pa.struct([("c_x2D", pa.int64())])))])
    column = pa.array([{"b_x20": [{"c_x2D": 1}]}], stored)
    assert json_values(column, own).to_pylist() == ['{"b é":[{"c-d":1}]}']


def test_plain_texts_are_not_quoted() -> None:
    """As a message key has them."""
    assert texts(pa.array(['a"', None])).to_pylist() == ['a"', None]
    assert texts(pa.array([7])).to_pylist() == ["7"]
    assert texts(pa.array([{"a": 1}, None])).to_pylist() == ['{"a":1}', None]


@given(st.lists(st.none() | st.text()))
def test_every_text_survives(values: list[str | None]) -> None:
    """Any characters."""
    written = json_values(pa.array(values, pa.large_string())).to_pylist()
    assert [json.loads(text) for text in written] == values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_survives(values: list[float]) -> None:
    """All digits of a double."""
    written = json_values(pa.array(np.array(values, np.float64))).to_pylist()
    assert [float(json.loads(text)) for text in written] == values
