"""JSON documents scanned side by side: what is taken is what other parsers read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from worker.decode.json_decoder import DecodedBlock, JsonDecoder
from worker.decode.scanned_json import ScannedJson, json_decoder

POINT = pa.struct([("x", pa.int64()), ("y", pa.float64()), ("label", pa.string())])
FIELDS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "a rather long name of a field": pa.float64(),
    "é": pa.string(),
    "ok": pa.bool_(),
    "at": POINT,
    "numbers": pa.list_(pa.float64()),
    "points": pa.list_(POINT),
}
MAPS = {**FIELDS, "map": pa.map_(pa.string(), pa.int64()), "deep": pa.map_(pa.string(), POINT)}
STYLES: list[Callable[[Any], str]] = [
    lambda row: json.dumps(row, separators=(",", ":"), ensure_ascii=False),
    lambda row: json.dumps(row, ensure_ascii=False),
    lambda row: json.dumps(row, separators=(",", ": ")),
]
INTEGERS = ["0", "-0", "7", "-12345678", "123456789012", "9223372036854775807", "1000000000000000"]
DOUBLES = ["0.0", "-0.0", "1.5", "0.1", "-3.25e-7", "1E5", "1.7976931348623157e99", "12345678"]
DOUBLES += ["0.12345678901234567", "999999999999999.9", "123456789.123456", "2.5e+3", "5e-99"]
TEXTS = [
    "",
    "x",
    "seven b",
    "eight by",
    "nine byte",
    "é" * 9,
    "}",
    ",",
    '", "id":',
    "null",
    "a" * 99,
]
ODD = [
    '{"id":01}',
    '{"id":-}',
    '{"id":}',
    '{"id":1.}',
    '{"id":.5}',
    '{"id":+1}',
    '{"id":1e}',
    '{"id":1,}',
    '{,"id":1}',
    '{"id":1}}',
    '{"id":1',
    '{"id":"1}',
    '{"ok":tru}',
    '{"ok":nul}',
    '{"id":1,"id":2}',
    '{"id":9223372036854775808}',
    '{"id":99999999999999999999999999}',
    "null",
    '{"é":"a\\"b"}',
    '{"é":"a\\u0041"}',
    '{"at":{}}',
    '{"at":{"x":1,"z":2}}',
    '{"numbers":[1,]}',
    '{"numbers":[,1]}',
    '{"numbers":[1 ,2]}',
    '{"points":[{}]}',
    '{"points":[null]}',
    "{}",
    "[]",
    '{"a rather long name of a field":1e400}',
    "",
    "{",
    '{"more":"text"}',
    '{"more":12345678901234567.5}',
    '{"more":1e5}',
    '{"more":[1]}',
    '{"é":"',
    '{"id" :1}',
    '{"id":1 }',
    ' {"id":1}',
    '{"id":{"id":1}}',
    '{"é":"x""id":1}',
    '{"id":1"é":"x"}',
]


def document(kind: pa.DataType, chance: random.Random) -> Any:
    """A value of a type; numbers by their text."""
    if chance.random() < 0.05:
        return None
    if pa.types.is_struct(kind):
        present = [f for f in kind if chance.random() < 0.9]
        return {f.name: document(f.type, chance) for f in present}
    if pa.types.is_list(kind):
        return [document(kind.value_type, chance) for _ in range(chance.randrange(4))]
    if pa.types.is_map(kind):
        names = chance.sample(["a", "b b", "é", ""], chance.randrange(4))
        return {name: document(kind.item_type, chance) for name in names}
    if pa.types.is_string(kind):
        return chance.choice(TEXTS)
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    return f"<{chance.choice(INTEGERS if pa.types.is_int64(kind) else DOUBLES)}>"


def texts(fields: dict[str, pa.DataType], count: int, seed: int, more: int = 0) -> list[str]:
    """Documents of one style, and some odd ones."""
    chance = random.Random(seed)
    style = STYLES[seed % len(STYLES)]
    names = list(fields)
    chance.shuffle(names)
    kind = pa.struct([(name, fields[name]) for name in names])
    found = []
    for _ in range(count):
        row = document(kind, chance) or {}
        row |= {"more": chance.choice(["text", True, None, "<5>", "<1.25>"])} if more else {}
        found.append(style(row).replace('"<', "").replace('>"', ""))
    return found


def by_row(decoded: DecodedBlock, count: int) -> dict[int, list[Any]]:
    """What was decoded, by position."""
    rows = range(count) if decoded.rows is None else decoded.rows.tolist()
    columns = [decoded.table[name].to_pylist() for name in decoded.table.column_names]
    return dict(zip(rows, map(list, zip(*columns, strict=True)), strict=True))


def read(value: Any, kind: pa.DataType) -> Any:
    """A parsed value as Arrow gives one of a type."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {f.name: read(value.get(f.name), f.type) for f in kind}
    if pa.types.is_list(kind):
        return [read(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        return [(key, read(item, kind.item_type)) for key, item in value.items()]
    return float(value) if pa.types.is_float64(kind) else value


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("fields", [FIELDS, MAPS])
def test_scanned_values_equal_those_of_pythons_parser(
    fields: dict[str, pa.DataType], seed: int
) -> None:
    """For every scanned row of random documents."""
    lines = texts(fields, 400, seed, more=seed % 3)
    values = pa.array([line.encode() for line in lines], pa.binary())
    scanned = next(iter(json_decoder(fields, report_unexpected=False).decode(values)))
    for row, found in by_row(scanned, len(values)).items():
        parsed = json.loads(lines[row])
        expected = [read(parsed.get(name), kind) for name, kind in fields.items()]
        assert found == expected, lines[row]


@pytest.mark.parametrize("seed", range(3))
def test_documents_with_one_field_order_are_scanned(seed: int) -> None:
    """Compact or with spaces; not those with a backslash."""
    lines = texts(FIELDS, 400, seed)
    values = pa.array([line.encode() for line in lines], pa.binary())
    first = next(iter(json_decoder(FIELDS, report_unexpected=False).decode(values)))
    expected = {row for row, line in enumerate(lines) if "\\" not in line}
    assert by_row(first, len(lines)).keys() == expected


def test_unusual_documents_are_not_scanned_wrongly() -> None:
    """Invalid JSON, or other JSON than expected."""
    plain = [json.dumps({"id": n, "é": "x", "ok": True}, ensure_ascii=False) for n in range(40)]
    plain = [line.replace(" ", "") for line in plain]
    for odd in ODD:
        lines = [*plain, odd, *plain]
        values = pa.array([line.encode() for line in lines], pa.binary())
        expected = by_row(JsonDecoder(FIELDS, report_unexpected=False).decode(values), len(values))
        scanned: ScannedJson = json_decoder(FIELDS, report_unexpected=False)
        parts = [by_row(part, len(values)) for part in scanned.decode(values)]
        found = {row: value for part in parts for row, value in part.items()}
        assert found == expected, odd


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (",", ": ")])
def test_documents_with_one_object_field_are_scanned(separators: tuple[str, str]) -> None:
    """Documents of one object are scanned, which tells the names and nulls they hold."""
    rows = [{"at": {"x": i, "y": None if i == 7 else 1.5, "passed": "z"}} for i in range(50)]
    lines = [json.dumps(row, separators=separators).encode() for row in rows]
    decoder = json_decoder({"at": POINT}, report_unexpected=False)
    (found,) = decoder.decode(pa.array(lines, pa.binary()))
    assert found.seen is not None
    assert found.seen.names == {"at", "x", "y", "passed"}
    assert found.seen.has_null
    (found,) = decoder.decode(pa.array(lines[8:], pa.binary()))
    assert found.seen is not None
    assert not found.seen.has_null
