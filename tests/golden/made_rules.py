"""Which differences are deliberate in cases that nobody recorded.

The recordings name their kind of loss by hand; here it is found from what was given and what Java
stored, and then the rules of ``records_rules`` are asked.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from connect.config.connector import ConverterConfig
from connect.converters import converter
from connect.errors import RecordError
from connect.records import Time, Timestamp
from connect.transforms.numbers import double_of
from tests.golden import records_model as model
from tests.golden.java_dates import java_dates
from tests.golden.made_avro_rules import avro_rule
from tests.golden.made_literals import has_odd_keys
from tests.golden.records_rules import Case, Outcome, Result, judge
from tests.golden.records_suite import input_value, judged, parsed_schema, row_outcome

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_PLAIN_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_OFFSET = re.compile(r"[+-]\d\d(:?\d\d)?$")
_DAY_US = 86_400_000_000
_TEXTUAL = frozenset({"string", "binary", "fixed[3]", "date", "time", "timestamp", "timestamptz"})
_INSTANTS = frozenset({"time", "timestamp", "timestamptz"})


def leaf(value: Any) -> Any:
    """The one value inside of containers that hold one each."""
    while isinstance(value, dict | list) or hasattr(value, "values"):
        if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
            ((kind, inner),) = value.items()
            if kind != "$map":
                return value
            value = inner[0][1]
            continue
        inner = value if isinstance(value, list) else list(_values(value).values())
        if len(inner) != 1:
            return None
        value = inner[0]
    return value


def _values(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else dict(value.values)


def loss_of(case: Case, given: Any) -> str | None:
    """The kind of loss in what Java stored for a value; None when it stored what was given.

    Args:
        case: of ``record-conversion``, with Java's answer.
        given: the value in our model.
    """
    sent, stored = leaf(given), leaf(case["expected"].get("row"))
    column = str(case["column"])
    if sent is None or stored is None:
        return None
    if isinstance(sent, str):
        loss = _text_loss(column, sent)
        if loss is not None:
            return loss
    if column == "date" and isinstance(sent, Time):
        return "time-of-day"
    if column == "date" and isinstance(sent, Timestamp):
        return "date-moved" if sent.millis < 0 else None
    if '"io.debezium.time.Micro' in json.dumps(case["input"]) and column in _INSTANTS:
        return "unit"
    number = _number(sent)
    if number is None:
        return None
    return _numeric_loss(number, _stored_number(column, stored))


def _text_loss(column: str, sent: str) -> str | None:
    """What Java loses of a text, or reads though it is none."""
    if column == "boolean":
        return None if sent.lower() in ("true", "false") else "text"
    if column == "uuid":
        return None if _UUID.fullmatch(sent) else "lenient"
    if column == "timestamp" and _OFFSET.search(sent[10:]):
        return "zone"
    is_number = column not in _TEXTUAL and _number(sent) is not None
    return "lenient" if is_number and not _PLAIN_NUMBER.fullmatch(sent) else None


def _number(sent: Any) -> Decimal | None:
    """What was given, exactly; texts as Java reads numbers."""
    if isinstance(sent, bool):
        return None
    if isinstance(sent, int | Decimal):
        return Decimal(sent)
    if isinstance(sent, float):
        return Decimal(repr(float(sent)))
    if isinstance(sent, str):
        try:
            return Decimal(sent) if _PLAIN_NUMBER.fullmatch(sent) else Decimal(double_of(sent))
        except ValueError:
            # digits of other scripts, which Java's BigDecimal reads
            return Decimal(0) if any(c.isdigit() and not c.isascii() for c in sent) else None
    return Decimal(sent.millis) if isinstance(sent, Timestamp | Time) else None


def _stored_number(column: str, stored: Any) -> Decimal | None:
    """What was stored, in the unit of numbers that are given for such a column."""
    if not isinstance(stored, dict):
        return Decimal(str(stored))
    ((kind, text),) = stored.items()
    if kind == "$date":
        return Decimal(model.days_of(text))
    if kind == "$time":
        return Decimal(_clock_us(text)) / 1000
    if kind in ("$timestampntz", "$timestamptz"):
        day, _, clock = text.removesuffix("Z").partition("T")
        return Decimal(model.days_of(day) * _DAY_US + _clock_us(clock)) / 1000
    if column.startswith("decimal"):
        return Decimal(text)
    return Decimal(text) if kind in ("$float32", "$float64") else None


def _clock_us(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hour, minute, second = map(int, clock.split(":"))
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction.ljust(6, "0")[:6])


def _numeric_loss(sent: Decimal, stored: Decimal | None) -> str | None:
    if not sent.is_finite():
        return "not-a-number" if stored is not None and stored.is_finite() else None
    if stored is None or sent == stored:
        return None
    if not stored.is_finite():
        return "digits"
    if abs(sent - stored) < 1:
        return "fraction"
    return "digits" if abs(sent - stored) < abs(sent) / 10**6 else "overflow"


LOSSES = {
    "out_of_range": {"overflow", "digits", "not-a-number"},
    "lost_fraction": {"fraction", "digits", "overflow", "lenient"},
    "not_a_number": {"not-a-number"},
    "lost_digits": {"digits", "fraction", "overflow"},
    "bad_text": {"text", "lenient"},
    "zone": {"zone"},
    "wrong_type": {"time-of-day"},
}
"""Kinds of loss that an error of ours may prevent. A double that is far from the number that was
given may lie beyond a bound or have lost digits: the sentences of both are true."""

_TRANSFORMS = (
    (
        "a field is renamed to a name that another one may have",
        "ReplaceField",
        r"SinkRecord.*is not a valid field name",
    ),
    ("a change whose row is no map is refused, not dropped", "Debezium", r"Only Map .*: None}$"),
    (
        "what Python's engine has no word for is an error",
        "",
        r"Invalid regex: .*(sets within|class )",
    ),
    ("doubles as texts have the fewest digits", "Cast", r"\dE\d"),
    ("bytes have no address", "", r"\[B@"),
)


_IS_LITERAL = re.compile("InsertHeader|SimpleHeader").search
_HAS_DATES = re.compile("TimestampConverter|InsertHeader|Router|SimpleHeader").search


def transform_rule(case: Case, difference: str) -> str | None:
    """The rule by which a transformation differs; None when there is none."""
    given = json.dumps([case.get("transform"), case["config"]])
    for name, transform, words in _TRANSFORMS:
        if transform in given and re.search(words, difference, re.DOTALL):
            return name
    if "ReplaceField" in given and _may_meet(case):
        return "a field is renamed to a name that another one may have"
    if 'null.with.default": "false' in json.dumps(case["config"]) and "Invalid value: null" in (
        difference
    ):
        return "a null of a required field stays null where no default is wanted"
    if "Flatten" in given and '"": {' in json.dumps(case["input"]):
        return "of two names that end in one any may win"
    return None


def date_rule(compare: Callable[[Case], Result], case: Case, difference: str) -> str | None:
    """The rule by which a time differs: with Java's reading of dates it does not."""
    with java_dates():
        if judged(compare, case).verdict == "failing":
            return None
    if "does not match" in difference:
        return "texts that a date pattern does not fit are refused"
    return "ISO's calendar before 1582, and parts of a time of any size"


def _may_meet(case: Case) -> bool:
    """Whether a field is to get a name that another one may have or get."""
    renames = [v for k, v in case["config"].items() if k.endswith("renames")]
    names = [pair.partition(":")[2].strip() for text in renames for pair in text.split(",")]
    return len(set(names)) < len(names) or bool(set(names) & _names(case["input"]))


def _names(value: Any) -> set[str]:
    """All names and fields' names in a record."""
    if isinstance(value, list):
        return set().union(*map(_names, value))
    if not isinstance(value, dict):
        return set()
    own = {value["field"]} if isinstance(value.get("field"), str) else set()
    return own.union(value.keys(), *map(_names, value.values()))


def verdict(compare: Callable[[Case], Result], case: Case) -> Result:
    """Compare a case as a recorded one, with its kind of loss found."""
    result = judged(compare, case)
    if result.verdict != "failing":
        return result
    if _IS_LITERAL(str(case)) and has_odd_keys(case["expected"]):
        return Result(case["name"], "by rule", "a literal's keys are neither lists nor maps")
    rule = date_rule(compare, case, result.detail) if _HAS_DATES(str(case)) else None
    if rule is not None:
        return Result(case["name"], "by rule", rule)
    if "converter" in case:
        rule = avro_rule(case) if case["converter"] == "AvroData" else converter_rule(case)
        return result if rule is None else Result(case["name"], "by rule", rule)
    if "" in case["expected"].get("split", ()):
        return Result(case["name"], "by rule", "an empty partition term is left out")
    if "record" in case or "records" in case:
        rule = table_rule(case, result.detail)
        return result if rule is None else Result(case["name"], "by rule", rule)
    if "input" in case and "config" in case and "table" not in case:
        rule = transform_rule(case, result.detail)
        return result if rule is None else Result(case["name"], "by rule", rule)
    if "column" in case:
        return _conversion(case, result)
    return _evolution(case, result) if "table" in case else result


def table_rule(case: Case, difference: str) -> str | None:
    """The rule by which routing or a new table differs; None when there is none."""
    made = case["expected"].get("tables", {})
    if "partition term" in difference and any(not t["partition"] for t in made.values()):
        return "a bad partition spec is an error"
    if case["config"].get("iceberg.tables.route-field") == "":
        return "an empty route field is none"
    if "Invalid regex" in difference:
        return "a regular expression that is none is an error of the configuration"
    if made and difference.endswith("'element']"):
        return "refused: an item of another kind than the list's first"
    if difference == "two fields have one name" and "insensitive" in json.dumps(case["config"]):
        return "names that differ by case only are refused"
    written = case["expected"].get("writes", {})
    is_empty = any("" in name.split(".") for name in written)
    if is_empty or "Invalid table name: null or empty" in json.dumps(case["expected"]):
        return "a name with an empty part is no route"
    return None


def _conversion(case: Case, result: Result) -> Result:
    schema = parsed_schema(case["table"]["schema"])
    assert schema is not None
    value, given = input_value(case["input"])
    outcome = row_outcome(schema, case["table"]["properties"], case["config"], value)
    loss = loss_of(case, given)
    if outcome.error is not None:
        if loss in LOSSES.get(outcome.error, ()):
            return Result(case["name"], "by rule", f"refused: {loss}")
        return result
    # what lies in containers is judged as what lies in a column
    flat = {**case, "given": {"c": leaf(given)}, "peer_corrupts": loss is not None, "loss": loss}
    return judge(flat, Outcome(None, {"c": leaf(outcome.value)}, detail=result.detail))


def _evolution(case: Case, result: Result) -> Result:
    """A record refused for one of its fields, of which Java stored something else."""
    if result.detail.startswith("a new field's name reads like"):
        return Result(case["name"], "by rule", "refused: dropped")
    is_instant = "connect.data.Timestamp" in json.dumps(case["input"])
    if is_instant and case["expected"].get("updates", {}).get("retype"):
        return Result(case["name"], "by rule", "a column of numbers is not widened for an instant")
    _, given = input_value(case["input"])
    row = case["expected"].get("row") or {}
    after = case["expected"].get("schema_after") or case["table"]["schema"]
    for field in after["fields"]:
        name, column = field["name"], field["type"]
        if isinstance(column, str) and isinstance(given, dict) and name in given and name in row:
            one = {**case, "column": column, "expected": {"row": {name: row[name]}}}
            loss = loss_of(one, {name: given[name]})
            if loss is not None and f"['{name}']" in result.detail:
                return Result(case["name"], "by rule", f"refused: {loss}")
    return result


# ------------------------------------------------------------------ converters


def _as_sent(value: Any) -> Any:
    """What JSON Java's answer is, to compare it with the document."""
    if isinstance(value, list):
        return [_as_sent(item) for item in value]
    if not isinstance(value, dict):
        return Decimal(repr(value)) if isinstance(value, float) else value
    if len(value) == 1:
        ((kind, inner),) = value.items()
        if kind == "$date":
            return model.days_of(inner)
        if kind == "$time":
            return _clock_us(inner) // 1000
        if kind in ("$int8", "$int16", "$int32", "$timestamp"):
            return inner
        if kind in ("$float32", "$float64", "$bigint"):
            return Decimal(str(inner))
        if kind == "$bytes":
            return inner
        if kind == "$map":
            return [[_as_sent(k), _as_sent(v)] for k, v in inner]
    return {name: _as_sent(inner) for name, inner in value.items()}


def is_held(sent: Any, answer: Any) -> bool:
    """Whether Java's answer is the document: each value of its kind, each number to its digit."""
    if isinstance(answer, dict) and len(answer) == 1 and "$decimal" in answer:
        return True  # its text form is the schema's matter
    answer = _as_sent(answer)
    if isinstance(sent, dict) and isinstance(answer, dict):
        names = {name for name in sent if sent[name] is not None}
        return names <= answer.keys() and all(is_held(sent[name], answer[name]) for name in names)
    if isinstance(sent, list) and isinstance(answer, list):
        return len(sent) == len(answer) and all(map(is_held, sent, answer))
    if isinstance(sent, bool) or isinstance(answer, bool):
        return sent is answer
    if isinstance(sent, int | Decimal) and isinstance(answer, int | Decimal):
        return Decimal(sent) == Decimal(answer)
    return bool(sent == answer)


def _is_kept(sent: Any, schema: Any) -> bool:
    """Whether Java's schema says what the envelope's does."""
    if isinstance(sent, list):
        return isinstance(schema, list) and all(map(_is_kept, sent, schema))
    if not isinstance(sent, dict):
        return is_held(sent, schema)
    return isinstance(schema, dict) and all(
        name in schema and _is_kept(inner, schema[name])
        for name, inner in sent.items()
        if inner is not None
    )


def converter_rule(case: Case) -> str | None:
    """The rule by which a converter differs: Java lost something of the document."""
    expected, text = case["expected"], case["input"].get("text")
    if "Exponent overflow" in json.dumps(expected):
        return "zero is zero with any exponent"
    if "error" in expected or text is None:
        return None
    try:
        document = json.loads(text, parse_float=Decimal)
    except ValueError:
        return "text that is no JSON document" if "schema" in expected else None
    schema, sent = None, document
    if case["config"].get("schemas.enable") != "false" and isinstance(document, dict):
        schema, sent = document.get("schema"), document.get("payload")
    if schema is not None and not _is_kept(schema, expected["schema"]):
        return "wrong kinds in a schema"
    if 'connect.data.Time"' in text and "'$timestamp'" in str(expected["value"]):
        return "a time outside of one day"
    if is_held(sent, expected["value"]):
        return None
    data = base64.b64decode(case["input"]["bytes"])
    built = converter(ConverterConfig(case["converter"], case["config"]), case["role"])
    try:
        _, value = built.to_connect("t", (), data)
    except RecordError:
        return "refused where Java loses something"
    return "numbers are kept exactly" if is_held(sent, value) else None
