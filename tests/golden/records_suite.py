"""Icefloe's reference path against recordings of the Java libraries.

``GOLDEN_RECORDS_DIR`` names another folder of recordings.
"""

from __future__ import annotations

import base64
import datetime as dt
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyspark.sql.variant_utils import VariantUtils

from connect.config.connector import ConverterConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import Struct
from connect.model.table_types import arrow_schema
from connect.records.conversion.conversion_failure import Unconvertible
from connect.records.conversion.row_converter import ConversionOptions, RowConverter
from connect.records.converters import converter
from connect.records.converters.avro.avro_data import avro_reader
from connect.records.converters.avro.avro_schema import BadSchema, parse_avro
from connect.records.converters.payload_errors import Malformed
from connect.records.converters.plain_converters import StringConverter
from connect.records.transforms.literals import parsed
from tests.golden import records_model as model
from tests.golden.records_rules import Case, Outcome, Result, judge

DIRECTORY = Path(os.environ.get("GOLDEN_RECORDS_DIR") or Path(__file__).parent / "records")
MORE = Path(__file__).parent / "records_more"
"""What Java answered to cases that ``tests/contract/test_java_records.py`` had found."""

_BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
Suites = dict[str, tuple[int, int, list[Result]]]


def cases_of(path: Path) -> list[dict[str, Any]]:
    """The cases of one file."""
    with path.open(encoding="utf-8") as lines:
        return [_case(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _case(path: Path, number: int, line: str) -> dict[str, Any]:
    """One case; of a line that Python cannot read the name alone, so that it fails alone."""
    try:
        case: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return {"name": f"{path.name} line {number} cannot be read"}
    return case


def files() -> Iterator[Path]:
    """Files of recordings, sorted."""
    folders = [DIRECTORY] if os.environ.get("GOLDEN_RECORDS_DIR") else [DIRECTORY, MORE]
    for folder in folders:
        yield from sorted(folder.glob("*/*.jsonl"))


def title(path: Path) -> str:
    """What a file is called."""
    more = "more " if path.is_relative_to(MORE) else ""
    return f"{more}{path.parent.name}/{path.stem}"


def compare_converter(case: Case) -> Result:
    """One case of ``converters/``."""
    raw = case["input"]["bytes"]
    data = None if raw is None else base64.b64decode(raw)
    try:
        built = converter(ConverterConfig(case["converter"], case["config"]), case["role"])
        schema, value = built.to_connect("t", (), data)
    except (ConfigError, RecordError) as error:
        return judge(case, Outcome(error.code, detail=str(error)))
    expected = case["expected"]
    agrees = False
    if "error" not in expected:
        agrees = model.schema_json(schema) == _exact(expected["schema"]) and same_value(
            schema, value, expected["value"]
        )
    given = None
    if case["input"].get("text") and case.get("peer_corrupts"):
        given = _json_or_none(case["input"]["text"])
    detail = model.displayed(model.schema_json(schema), value, expected)
    return judge({**case, "given": given}, Outcome(None, value, agrees, detail))


def compare_header(case: Case) -> Result:
    """One case of ``converters/SimpleHeaderConverter.jsonl``: the grammar of literals."""
    raw = case["input"]["bytes"]
    schema, value = None, None
    if raw is not None:
        _, text = StringConverter({}, "header").to_connect("t", (), base64.b64decode(raw))
        schema, value = parsed(text)
    expected = case["expected"]
    agrees = "error" not in expected and (
        model.schema_json(schema) == _exact(expected["schema"])
        and (
            same_value(schema, value, expected["value"])
            or model.alike(value, model.payload(schema, expected["value"]))
        )
    )
    detail = model.displayed(model.schema_json(schema), value, expected)
    return judge(case, Outcome(None, value, agrees, detail))


def compare_avro(case: Case) -> Result:
    """One case of ``converters/AvroData.jsonl``: a bare datum with its schema."""
    source, data = case["input"], base64.b64decode(case["input"]["bytes"])
    expected = case["expected"]
    try:
        reader = avro_reader(parse_avro(json.dumps(source["avro_schema"])), case["config"])
        schema, value = reader.read(data)
    except (BadSchema, Malformed) as error:
        code = error.code if isinstance(error, Malformed) else "bad_schema"
        return judge(case, Outcome(code, detail=str(error)))
    agrees = False
    if "error" not in expected:
        wanted = expected["schema"]
        # a schema that Java's envelope cannot hold is a text; the value is to be the same
        is_reported = isinstance(wanted, str) or model.schema_json(schema) == _exact(wanted)
        agrees = is_reported and same_value(schema, value, expected["value"])
    detail = model.displayed(model.schema_json(schema), value, expected)
    return judge(case, Outcome(None, value, agrees, detail))


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except ValueError:
        return None


def _exact(schema: Any) -> Any:
    """The recorded schema as our own writer of schemas shows it."""
    return model.schema_json(model.schema_of(schema)) if schema is not None else None


def same_value(schema: Any, value: Any, expected: Any) -> bool:
    """Whether a value is the one in a recorded form; the schema is ours."""
    if isinstance(expected, dict) and "$deep" in expected and len(expected) == 1:
        return model.depth(value) == expected["$deep"]
    if schema is None:
        wanted = model.plain(expected)
        if (
            isinstance(expected, dict)
            and isinstance(value, dict)
            and expected.keys() == value.keys()
        ):
            wanted = {k: model.plain(v) for k, v in expected.items()}  # a field may be named $int8
        return model.same(value, wanted)
    wanted = model.payload(schema, expected)
    if isinstance(value, model.Timestamp) and isinstance(wanted, model.Date):
        return value.millis // 86_400_000 == wanted.days  # so recorded for an int32 schema
    return model.same(value, wanted)


def compare_conversion(case: Case) -> Result:
    """One case of ``record-conversion/``."""
    table = case["table"]
    schema = parsed_schema(table["schema"])
    if schema is None:
        return judge(case, Outcome("unsupported_type"))
    value, given = input_value(case["input"])
    outcome = row_outcome(schema, table["properties"], case["config"], value)
    if outcome.error is None and "row" in case["expected"]:
        agrees = same_row(schema, outcome.value, case["expected"]["row"])
        detail = f"{outcome.value} for {case['expected']['row']}"
        outcome = Outcome(None, outcome.value, agrees, detail)
    return judge({**case, "given": given}, outcome)


def parsed_schema(source: Mapping[str, Any]) -> Schema | None:
    """An Iceberg schema; None when pyiceberg does not know one of its types."""
    try:
        return Schema.model_validate(source)
    except ValueError:
        return None


def input_value(source: Mapping[str, Any]) -> tuple[Any, Any]:
    """The value of a case, and the same with structs as dicts for the rules."""
    if source["schemas"] and source["value"] is not None:
        _, value = model.with_schema(source["value"])
    else:
        value = model.plain(source["value"])
    return value, dict(value.values) if isinstance(value, Struct) else value


def row_outcome(
    schema: Schema, properties: Mapping[str, str], config: Mapping[str, str], value: Any
) -> Outcome:
    """Convert a record, and show the row to pyarrow."""
    options = ConversionOptions(
        case_insensitive=config.get("iceberg.tables.schema-case-insensitive", "").lower() == "true",
        name_mapping=properties.get("schema.name-mapping.default"),
    )
    if not isinstance(value, dict | Struct):
        return Outcome("wrong_type")
    try:
        row = RowConverter(schema, options).row(value)
    except Unconvertible as refusal:
        return Outcome(refusal.reason, detail=f"{refusal.message} {refusal.path}")
    for field in arrow_schema(schema):
        pa.array([row[field.name]], type=field.type)
    return Outcome(None, row)


def same_row(schema: Schema, row: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Whether a row holds what was read back from Java's file."""
    names = [field.name for field in schema.fields]
    return set(names) == set(expected) and all(
        same_column(row[name], expected[name]) for name in names
    )


def same_column(value: Any, expected: Any) -> bool:
    """Whether a value is what was read back from a column of Java's file."""
    if value is None or expected is None:
        return value is None and expected is None
    if isinstance(expected, dict) and len(expected) == 1:
        ((kind, inner),) = expected.items()
        if kind in _COLUMNS:
            return bool(_COLUMNS[kind](value, inner))
    if isinstance(expected, dict):
        return expected.keys() == value.keys() and all(
            same_column(value[k], expected[k]) for k in expected
        )
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(same_column, value, expected))
    if isinstance(expected, float):
        return value in (expected, model.float32(expected))
    return type(value) is type(expected) and bool(value == expected)


def _same_map(value: Any, expected: Any) -> bool:
    left = [pair for pair in value if any(_same_pair(pair, other) for other in expected)]
    return len(value) == len(expected) and len(left) == len(value)


def _same_pair(pair: Any, other: Any) -> bool:
    return same_column(pair[0], other[0]) and same_column(pair[1], other[1])


def _same_float(value: Any, expected: Any) -> bool:
    wanted = model.plain({"$float64": expected})
    return value == wanted or (value != value and wanted != wanted)  # noqa: PLR0124 - NaN


def _clock_us(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hour, minute, second = map(int, clock.split(":"))
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction.ljust(6, "0")[:6])


def _instant_us(text: str) -> int:
    day, _, clock = text.removesuffix("Z").partition("T")
    return model.days_of(day) * 86_400_000_000 + _clock_us(clock)


def _same_variant(value: Any, expected: Any) -> bool:
    data = value["value"]
    if isinstance(expected, dict) and list(expected) == ["$time"]:  # PySpark does not read it
        micros = int.from_bytes(data[1:], "little")
        return (data[0], micros) == (17 << 2, _clock_us(expected["$time"]))
    with localcontext(prec=40):  # it computes with decimals
        document = VariantUtils.to_python(data, value["metadata"])
    return _same_document(document, expected)


def _same_document(value: Any, expected: Any) -> bool:
    if isinstance(expected, dict) and len(expected) == 1 and next(iter(expected)) in _DOCUMENTS:
        ((kind, inner),) = expected.items()
        return bool(_DOCUMENTS[kind](value, inner))
    if isinstance(expected, dict):
        return expected.keys() == value.keys() and all(
            _same_document(value[k], expected[k]) for k in expected
        )
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same_document, value, expected))
    return type(value) is type(expected) and bool(value == expected)


_DOCUMENTS: dict[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(("$int8", "$int16", "$int32"), lambda value, number: value == number),
    "$float32": _same_float,
    "$float64": _same_float,
    "$decimal": lambda value, text: Decimal(value) == Decimal(text),
    "$bytes": lambda value, text: value == base64.b64decode(text),
    "$date": lambda value, text: value == dt.date.fromisoformat(text),
    "$timestampntz": lambda value, text: value == dt.datetime.fromisoformat(text),
    "$timestamptz": lambda value, text: value == dt.datetime.fromisoformat(text),
}
_COLUMNS: dict[str, Callable[[Any, Any], bool]] = {
    "$decimal": lambda value, text: str(value) == str(Decimal(text)),
    "$bytes": lambda value, text: value == base64.b64decode(text),
    "$uuid": lambda value, text: value == bytes.fromhex(text.replace("-", "")),
    "$float32": _same_float,
    "$float64": _same_float,
    "$date": lambda value, text: value == model.days_of(text),
    "$time": lambda value, text: value == _clock_us(text),
    "$timestampntz": lambda value, text: value == _instant_us(text),
    "$timestamptz": lambda value, text: value == _instant_us(text),
    "$map": _same_map,
    "$variant": _same_variant,
}


_CONVERTERS = {"AvroData": compare_avro, "SimpleHeaderConverter": compare_header}


def comparison(path: Path) -> Callable[[Case], Result]:
    """What compares the cases of a file."""
    from tests.golden import records_tables_suite as tables
    from tests.golden import records_transforms_suite as transforms

    return {
        "transforms": transforms.compare_transform,
        "predicates": transforms.compare_predicate,
        "converters": _CONVERTERS.get(path.stem, compare_converter),
        "record-conversion": compare_conversion,
        "schema": tables.COMPARISONS.get(path.stem),
        "routing": tables.COMPARISONS.get(path.stem),
    }[path.parent.name]


def judged(compare: Callable[[Case], Result], case: Case) -> Result:
    """A verdict in any case: what breaks the comparison fails its case, not the run."""
    try:
        return compare(case)
    except _BROKEN as error:
        return Result(case["name"], "failing", f"{type(error).__name__}: {error}")
    except RecursionError:
        return Result(case["name"], "failing", "nested too deeply to be compared")


@functools.cache
def results_of(path: Path) -> tuple[Result, ...]:
    """The verdicts of one file, in the order of its cases."""
    compare = comparison(path)
    return tuple(judged(compare, case) for case in cases_of(path))


def run() -> Suites:
    """Compare everything.

    Returns:
        Per file: how many agree, how many differ by rule, and those that fail.
    """
    suites: Suites = {}
    for path in files():
        results = results_of(path)
        suites[title(path)] = (
            sum(r.verdict == "agreed" for r in results),
            sum(r.verdict == "by rule" for r in results),
            [r for r in results if r.verdict == "failing"],
        )
    assert suites, f"no recordings in {DIRECTORY}"
    return suites


if __name__ == "__main__":
    for part, (agreed, by_rule, failing) in run().items():
        print(f"golden {part}: agreed {agreed}, by rule {by_rule}, failing {len(failing)}")
