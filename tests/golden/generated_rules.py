"""Rules for the deliberate differences in generated cases.

A recorded case names its kind of loss. For a generated case, this module finds the kind of loss
from the input and from the value that Java stored. It then applies the rules of ``records_rules``.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from connect.config.connector import ConverterConfig
from connect.errors import RecordError
from connect.records.conversion.text import to_string
from connect.records.converters import converter
from tests.golden import records_model as model
from tests.golden.generated_avro_rules import avro_rule
from tests.golden.generated_literals import has_odd_keys
from tests.golden.generated_losses import LOSSES, clock_us, leaf, loss_of, values_of
from tests.golden.java_dates import java_dates
from tests.golden.records_rules import Case, Outcome, Result, judge
from tests.golden.records_suite import input_value, judged, parsed_schema, row_outcome

_TRANSFORMS = (
    (
        "a field is renamed to a name that another one may have",
        "ReplaceField",
        r"SinkRecord.*is not a valid field name",
    ),
    ("a change whose row is no map is refused, not dropped", "Debezium", r"Only Map .*: None}$"),
    (
        "syntax that Python's engine does not support is an error",
        "",
        r"Invalid regex: .*(sets within|class )",
    ),
    ("bytes have no address", "", r"\[B@"),
)


_IS_LITERAL = re.compile("InsertHeader|SimpleHeader").search
_HAS_DATES = re.compile("TimestampConverter|InsertHeader|Router|SimpleHeader").search


def transform_rule(case: Case, difference: str) -> str | None:
    """The rule by which a transformation differs; None when there is none."""
    given = json.dumps([case.get("transform"), case["config"]])
    for name, transform, pattern in _TRANSFORMS:
        if transform in given and re.search(pattern, difference, re.DOTALL):
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
    reported = _shortest(case["expected"])
    if (
        reported != case["expected"]
        and judged(compare, {**case, "expected": reported}).verdict == "agreed"
    ):
        return Result(case["name"], "by rule", "doubles as texts have the fewest digits")
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


_DOUBLE = re.compile(r"-?[0-9]+\.[0-9]{15,}(?:E-?[0-9]+)?")


def _shortest(answer: Any) -> Any:
    """An answer with its doubles as texts as Java 19 and later write them."""
    if isinstance(answer, str):
        return _DOUBLE.sub(lambda match: to_string(float(match[0])), answer)
    if isinstance(answer, list):
        return [_shortest(item) for item in answer]
    if isinstance(answer, dict):
        return {name: _shortest(inner) for name, inner in answer.items()}
    return answer


def table_rule(case: Case, difference: str) -> str | None:
    """The rule by which routing or a new table differs; None when there is none."""
    made = case["expected"].get("tables", {})
    if "partition term" in difference and any(not t["partition"] for t in made.values()):
        return "a bad partition spec is an error"
    if case["config"].get("iceberg.tables.route-field") == "":
        return "an empty route field is none"
    if "Invalid regex" in difference:
        return "a regular expression that is none is an error of the configuration"
    if "the text is neither true nor false" in difference and "auto-create" in str(case["config"]):
        return "refused: text"
    if made and difference.endswith("'element']"):
        return "refused: an item of another kind than the list's first"
    if difference == "two fields have the same name" and "insensitive" in json.dumps(
        case["config"]
    ):
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
    sent, stored = leaf(given), leaf(outcome.value)
    if isinstance(sent, float) and isinstance(stored, Decimal) and loss in ("digits", "overflow"):
        is_kept = stored == Decimal(repr(sent))
        return (
            Result(case["name"], "by rule", "whole doubles keep their digits")
            if is_kept
            else result
        )
    # what lies in containers is judged as what lies in a column
    flat = {**case, "given": {"c": leaf(given)}, "peer_corrupts": loss is not None, "loss": loss}
    return judge(flat, Outcome(None, {"c": leaf(outcome.value)}, detail=result.detail))


def _evolution(case: Case, result: Result) -> Result:
    """A record refused for one of its fields, of which Java stored something else."""
    if result.detail.startswith("the name of a new field equals"):
        return Result(case["name"], "by rule", "refused: dropped")
    is_instant = "connect.data.Timestamp" in json.dumps(case["input"])
    if is_instant and case["expected"].get("updates", {}).get("retype"):
        return Result(case["name"], "by rule", "a column of numbers is not widened for an instant")
    refused = re.search(r"\['.*'\]$", result.detail)
    if refused is None:
        return result
    given, _ = input_value(case["input"])
    after = case["expected"].get("schema_after") or case["table"]["schema"]
    path = ast.literal_eval(refused[0])
    for column, sent, stored in _leaves(after, given, case["expected"].get("row"), path):
        one = {**case, "column": column, "expected": {"row": {"c": stored}}}
        loss = loss_of(one, {"c": sent})
        if loss is not None:
            return Result(case["name"], "by rule", f"refused: {loss}")
    return result


def _leaves(kind: Any, given: Any, stored: Any, path: list[str]) -> Iterator[tuple[str, Any, Any]]:
    """Type, given value and stored value of a column below structs and lists."""
    if isinstance(kind, str) and not path:
        yield kind, given, stored
    if isinstance(kind, str) or not path or given is None or stored is None:
        return
    if kind["type"] == "list":
        for item, other in zip(given, stored, strict=True):
            yield from _leaves(kind["element"], item, other, path[1:])
    if kind["type"] == "map":
        rest = dict(stored["$map"])
        for key, item in given.items():
            yield from _leaves(kind["value"], item, rest.get(str(key)), path[1:])
    for field in kind.get("fields", ()):
        if field["name"] == path[0] and path[0] in values_of(given):
            inner = values_of(given)[path[0]]
            yield from _leaves(field["type"], inner, stored[path[0]], path[1:])


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
            return clock_us(inner) // 1000
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


def _half_pair(case: Case) -> str | None:
    """Half a pair of UTF-16: to Java what follows it is malformed, too."""
    built = converter(ConverterConfig(case["converter"], case["config"]), case["role"])
    _, value = built.to_connect("t", (), base64.b64decode(case["input"]["bytes"]))
    pattern = re.escape(case["expected"]["value"]).replace("\ufffd", "\ufffd.?")
    return "what follows half a pair is kept" if re.fullmatch(pattern, value, re.DOTALL) else None


def converter_rule(case: Case) -> str | None:
    """The rule by which a converter differs: Java lost something of the document."""
    expected, text = case["expected"], case["input"].get("text")
    if "Exponent overflow" in json.dumps(expected):
        return "zero is zero with any exponent"
    if "Invalid null value for required" in json.dumps(expected) and '"default": null' in (
        text or ""
    ):
        return "a default of null for what is required is none"
    if "error" in expected or text is None:
        return _half_pair(case) if "\ufffd" in str(expected.get("value")) else None
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
