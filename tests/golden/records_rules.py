"""Where Icefloe differs from the recorded Java sink on purpose: by kind of loss, never by name.

The list is explained in ``docs/reference/records-differences.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from connect.model.records import Struct

Case = Mapping[str, Any]
Verdict = Literal["agreed", "by rule", "failing"]


@dataclass(frozen=True)
class Outcome:
    """What Icefloe did with a case.

    Attributes:
        error: the error's code, None when there was a value.
        value: the value or row, in the model of ``records_model``.
        agrees: whether the value is the recorded one.
        detail: for a reader of a failure.
        has_more: whether the row is the recorded one with more fields of structs or new lists.
    """

    error: str | None
    value: Any = None
    agrees: bool = False
    detail: str = ""
    has_more: bool = False


@dataclass(frozen=True)
class Rule:
    """A difference: it applies when ``holds`` and the case is of one of the kinds of loss."""

    name: str
    losses: frozenset[str]
    holds: Callable[[Case, Outcome], bool]


@dataclass(frozen=True)
class Result:
    """The verdict about one case."""

    name: str
    verdict: Verdict
    detail: str = ""


def _refused(_: Case, outcome: Outcome) -> bool:
    return outcome.error is not None


def _stored_as_java(_: Case, outcome: Outcome) -> bool:
    return outcome.error is None and outcome.agrees


def _exact_integer(case: Case, outcome: Outcome) -> bool:
    """The number that was given, to its last digit, where Java has another."""
    given, stored = _leaf(case.get("given")), _leaf(outcome.value)
    if outcome.error is not None or given is None or stored is None:
        return False
    return Decimal(given) == Decimal(stored)


def _leaf(value: Any) -> Any:
    """The only number inside of a value."""
    while isinstance(value, dict | list | Struct):
        value = dict(value.values) if isinstance(value, Struct) else value
        inner = list(value.values()) if isinstance(value, dict) else value
        if len(inner) != 1:
            return None
        value = inner[0]
    if isinstance(value, float):
        return Decimal(repr(value))
    return value if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _same_day(case: Case, outcome: Outcome) -> bool:
    given = _leaf_instant(case.get("given"))
    stored = next(iter(outcome.value.values())) if isinstance(outcome.value, dict) else None
    return given is not None and stored == given // 86_400_000


def _leaf_instant(value: Any) -> int | None:
    inner = next(iter(value.values())) if isinstance(value, dict) and value else None
    millis = getattr(inner, "millis", None)
    return millis if isinstance(millis, int) else None


def _micros_kept(case: Case, outcome: Outcome) -> bool:
    stored = next(iter(outcome.value.values())) if isinstance(outcome.value, dict) else None
    return stored is not None and stored == next(iter(case["given"].values()))


PLAIN_CORRUPTION = frozenset({"overflow", "not-a-number", "text", "date-moved", "digits", "unit"})
POLICY_REFUSED = frozenset(
    {"fraction", "rounded", "zone", "lenient", "keys-merged", "trailing", "dropped", "time-of-day"}
)

RULES = (
    Rule("refused instead of corrupted", PLAIN_CORRUPTION | POLICY_REFUSED, _refused),
    Rule("whole numbers of any size are kept", frozenset({"overflow"}), _exact_integer),
    Rule("an instant in a date column is its UTC day", frozenset({"date-moved"}), _same_day),
    Rule(
        "stored as Java does",
        frozenset({"sub-micro", "time-of-day", "scale"}),
        _stored_as_java,
    ),
    Rule("of duplicate JSON names the last wins", frozenset({"keys-merged"}), _stored_as_java),
    Rule("timestamps are read in the unit their schema names", frozenset({"unit"}), _micros_kept),
)


def judge(case: Case, outcome: Outcome) -> Result:
    """Compare an outcome with what was recorded."""
    name = case["name"]
    java_error = "error" in case["expected"] and case["expected"]["error"] is not None
    if case.get("peer_corrupts"):
        for rule in RULES:
            if case["loss"] in rule.losses and rule.holds(case, outcome):
                return Result(name, "by rule", rule.name)
        return Result(name, "failing", outcome.detail or f"{case['loss']}: {outcome}")
    if java_error == (outcome.error is not None) and (java_error or outcome.agrees):
        return Result(name, "agreed")
    for extension in EXTENSIONS:
        if extension.holds(case, outcome):
            return Result(name, "by rule", extension.name)
    return Result(name, "failing", outcome.detail or f"{outcome} for {case['expected']}")


def _colon_offset(case: Case, outcome: Outcome) -> bool:
    text = case.get("given")
    inner = next(iter(text.values())) if isinstance(text, dict) and text else None
    minutes = isinstance(inner, str) and len(inner) == 22 and inner[-6] in "+-" and inner[-3] == ":"
    return minutes and outcome.error in (None, "zone")


def _java_writer_bug(case: Case, outcome: Outcome) -> bool:
    error = case["expected"].get("error") or {}
    bug = error.get("class", "").endswith("ClassCastException") and error["stage"] == "write"
    return bug and outcome.error is None


def _type_of_version_3(case: Case, outcome: Outcome) -> bool:
    if case.get("table", {}).get("properties", {}).get("format-version") != "3":
        return False
    only_null = outcome.error is None and all(v is None for v in outcome.value.values())
    return outcome.error == "unsupported_type" or only_null


def _nanoseconds(case: Case, outcome: Outcome) -> bool:
    recorded_error = (case["expected"].get("error") or {}).get("message") or ""
    return recorded_error == "Unsupported type: TIMESTAMP_NANO" and outcome.error is None


def _instant_in_variant(case: Case, outcome: Outcome) -> bool:
    given = case.get("input", {}).get("value")
    return "$instant" in json.dumps(given) and outcome.error == "wrong_type"


def _date_in_variant(case: Case, outcome: Outcome) -> bool:
    recorded_error = (case["expected"].get("error") or {}).get("message") or ""
    text = "Cannot convert java.util.Date to variant without a recognized logical type schema"
    return recorded_error.startswith(text) and outcome.error is None


def _bad_spec_is_an_error(case: Case, outcome: Outcome) -> bool:
    return "created without partitions" in case.get("note", "") and outcome.error is not None


def _table_named_twice(case: Case, outcome: Outcome) -> bool:
    tables = case.get("config", {}).get("iceberg.tables", "").split(",")
    return len(set(tables)) < len(tables) and outcome.error is None


def _missing_at_start(case: Case, outcome: Outcome) -> bool:
    return outcome.error == "table_missing" and "error" not in case["expected"]


def _no_table(case: Case, outcome: Outcome) -> bool:
    return case.get("config", {}).get("iceberg.tables") == "" and outcome.error is not None


def _recursive(case: Case, outcome: Outcome) -> bool:
    expected = case["expected"].get("schema")
    return expected == "unprintable schema: recursive" and outcome.error == "bad_schema"


def _fixed_decimal(case: Case, outcome: Outcome) -> bool:
    error = case["expected"].get("error") or {}
    bug = "org.apache.kafka.connect.data.Decimal) differs from name" in error.get("message", "")
    return bug and outcome.error is None


def _small_integer(case: Case, outcome: Outcome) -> bool:
    small = any(
        f'"connect.type": "{t}"' in json.dumps(case.get("input")) for t in ("int8", "int16")
    )
    return small and outcome.error == "out_of_range"


def _fields_of_later_items(case: Case, outcome: Outcome) -> bool:
    """Java infers a new list from its first item, and takes the last of two new types."""
    is_inferred = not {"updates", "type"}.isdisjoint(case["expected"])
    return outcome.error is None and outcome.has_more and is_inferred


def _no_type_for_number(case: Case, outcome: Outcome) -> bool:
    """Java drops a field of which it cannot infer a type."""
    is_dropped = "type" in case["expected"] and case["expected"]["type"] is None
    return is_dropped and outcome.error == "unsupported_type"


def _decimal_grows(case: Case, outcome: Outcome) -> bool:
    """Java's writer refuses a decimal that its column is too short for."""
    recorded_error = (case["expected"].get("error") or {}).get("message") or ""
    is_long = re.match(r"Cannot write value as decimal\(.*too large", recorded_error) is not None
    given, stored = _leaf(case.get("given")), _leaf(outcome.value)
    return is_long and outcome.error is None and None not in (given, stored) and given == stored


def _dropped_column(case: Case, outcome: Outcome) -> bool:
    """Java's writer fails at the null of a required column."""
    error = case["expected"].get("error") or {}
    is_null = error.get("class") == "java.lang.NullPointerException" and error["stage"] == "write"
    return is_null and "updates" in case["expected"] and outcome.error is None


_AVRO_NAMES = ("Illegal character in", "Illegal initial character", "Empty name", "Enum Default:")
_AVRO_PROPERTIES = (
    "Invalid Connect version found",
    "Mismatched versions",
    "Mismatched names",
    "Connect type annotation for Avro int field is null",
    "is not a valid field name",  # of a union whose type has a connect.name
)
_AVRO_MAPS = (
    "Did not find matching union field for data",
    "Invalid type for MAP: class",
)


def _java_error(*texts: str) -> Callable[[Case, Outcome], bool]:
    """Return a rule: Java fails with one of the texts, and our reader accepts the case."""

    def holds(case: Case, outcome: Outcome) -> bool:
        recorded_error = (case["expected"].get("error") or {}).get("message") or ""
        return outcome.error is None and any(text in recorded_error for text in texts)

    return holds


EXTENSIONS = (
    Rule(
        "Avro's null alone is null",
        frozenset(),
        _java_error("Standalone null schemas", "Found null value for non-optional schema"),
    ),
    Rule(
        "defaults that hold unions of null alone",
        frozenset(),
        _java_error('data.Field.name()" because "field" is null'),
    ),
    Rule(
        "a record's own default may hold unions",
        frozenset(),
        _java_error(
            'the return value of "org.apache.kafka.connect.data.Schema.field(String)" is null'
        ),
    ),
    Rule("fields and symbols may have any name", frozenset(), _java_error(*_AVRO_NAMES)),
    Rule("fields of later items of a new list are added", frozenset(), _fields_of_later_items),
    Rule("a new number without a type is refused", frozenset(), _no_type_for_number),
    Rule("a decimal column grows under evolution", frozenset(), _decimal_grows),
    Rule("a dropped column becomes optional under evolution", frozenset(), _dropped_column),
    Rule("odd connect properties are ignored", frozenset(), _java_error(*_AVRO_PROPERTIES)),
    Rule("maps of Avro's entries are read anywhere", frozenset(), _java_error(*_AVRO_MAPS)),
    Rule("Avro schemas that contain themselves are refused", frozenset(), _recursive),
    Rule("decimals of Avro's fixed are read", frozenset(), _fixed_decimal),
    Rule("numbers outside of connect.type are refused", frozenset(), _small_integer),
    Rule("a table named twice gets a record once", frozenset(), _table_named_twice),
    Rule("a listed table that is missing ends the start", frozenset(), _missing_at_start),
    Rule("a connector needs a table", frozenset(), _no_table),
    Rule("an offset with colon may follow minutes", frozenset(), _colon_offset),
    Rule("a table that names its Parquet format takes uuids", frozenset(), _java_writer_bug),
    Rule("other types of format version 3 are refused", frozenset(), _type_of_version_3),
    Rule("nanosecond timestamps are converted", frozenset(), _nanoseconds),
    Rule("dates and times of Connect are variants", frozenset(), _date_in_variant),
    Rule("no converter makes Java's Instant", frozenset(), _instant_in_variant),
    Rule("a bad partition spec is an error", frozenset(), _bad_spec_is_an_error),
)
