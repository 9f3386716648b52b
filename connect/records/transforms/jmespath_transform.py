"""``Jmespath``: sets fields with JMESPath expressions over the value and its coordinates."""

from __future__ import annotations

from typing import Any, Final

import jmespath
from jmespath import functions
from jmespath.exceptions import JMESPathError

from connect.config.key import Key
from connect.errors import ConfigError
from connect.java_compat.iso_time import instant_text
from connect.model.records import Header, SinkRecord, Struct
from connect.records.transforms.transform import (
    FRACTIONAL,
    OWN,
    WHOLE,
    Apply,
    Declaration,
    Example,
    Options,
    Side,
    all_values,
    refused,
    with_side,
)
from connect.records.transforms.value_paths import fields_of, put_in, steps

_PURPOSE: Final = "JMESPath"
EXPRESSION_CHARACTERS_MAX: Final = 10_000
_FIELDS: Final = "fields."
_NUMBER: Final = {"types": ["number"]}


def _substr(_: Any, text: str, start: float, length: float) -> str:
    first = max(0, int(start))  # a negative number is 0, as in kafka-delta-ingest
    return text[first : first + max(0, int(length))]


def _iso(nanos: int) -> Any:
    return lambda _, number: instant_text(int(number * nanos))


# the untyped library finds custom functions as methods of a subclass
_FUNCTIONS: Final[Any] = type(functions.Functions)(
    "RecordFunctions",
    (functions.Functions,),
    {
        "_func_substr": functions.signature({"types": ["string"]}, _NUMBER, _NUMBER)(_substr),
        "_func_epoch_seconds_to_iso8601": functions.signature(_NUMBER)(_iso(1_000_000_000)),
        "_func_epoch_millis_to_iso8601": functions.signature(_NUMBER)(_iso(1_000_000)),
        "_func_epoch_micros_to_iso8601": functions.signature(_NUMBER)(_iso(1_000)),
        "_func_epoch_millis_to_micro": functions.signature(_NUMBER)(
            lambda _, number: int(number * 1_000)
        ),
    },
)


def with_functions() -> Any:
    """Return search options with the added functions."""
    return jmespath.Options(custom_functions=_FUNCTIONS())


def compiled(name: str, expression: str) -> Any:
    """Return a compiled expression.

    Args:
        name: of its option, for errors.
        expression: its text.

    Raises:
        ConfigError: ``jmespath``.
    """
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise ConfigError(
            f"{name}: the expression has more than {EXPRESSION_CHARACTERS_MAX} characters",
            code="jmespath",
        )
    try:
        return jmespath.compile(expression)
    except RecursionError:
        raise ConfigError(f"{name}: the expression is nested too deeply", code="jmespath") from None
    except JMESPathError as error:
        raise ConfigError(
            f"{name}: invalid JMESPath expression: {error}", code="jmespath"
        ) from None


def _searchable(value: Any) -> Any:
    """Convert a value to the types of JMESPath, which checks the exact class of a value."""
    kind = type(value)
    if kind is Struct:
        value, kind = all_values(value), dict
    if kind is dict:
        return {str(name): _searchable(item) for name, item in value.items()}
    if kind is list:
        return [_searchable(item) for item in value]
    if kind in WHOLE:
        return int(value)
    return float(value) if kind in FRACTIONAL else value


def make(options: Options, side: Side) -> Apply:
    """See ``Declaration``."""
    del side
    fields = {
        steps(target): compiled(_FIELDS + target, expression)
        for target, expression in options[_FIELDS].items()
    }
    where = compiled("where", options["where"]) if options["where"] else None
    if not fields and where is None:
        raise ConfigError(
            "neither fields nor where is set; set at least one of them", code="transform_option"
        )
    keeps, sets_null = options["keep"], options["set-null"]
    search_options = with_functions()

    def search(expression: Any, document: dict[str, Any]) -> Any:
        try:
            return expression.search(document, options=search_options)
        except (JMESPathError, ValueError, OverflowError, TypeError, ArithmeticError) as error:
            # the error's message may contain the value
            kind = type(error).__name__
            raise refused(f"the expression failed: {kind}", "jmespath") from None

    def apply(record: SinkRecord) -> SinkRecord | None:
        if record.value is None:
            return record
        value = fields_of(record.value, _PURPOSE)
        document = {**_searchable(value), "kafka": _origin(record)}
        if where is not None and not search(where, document):
            return None
        if not fields:
            return record
        new: dict[Any, Any] = value if keeps else {}
        for target, expression in fields.items():
            result = search(expression, document)
            if sets_null or result is not None:
                new = put_in(new, target, result)
        return with_side(record, "value", None, new)

    return apply


def _origin(record: SinkRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "key": _searchable(record.key),
        "headers": {header.key: _header(header) for header in record.headers},
    }


def _header(header: Header) -> Any:
    """Return a raw header as text if it is valid UTF-8."""
    value = _searchable(header.value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


DECLARATION: Final = Declaration(
    "Jmespath",
    OWN,
    "Sets fields to the results of [JMESPath](https://jmespath.org) expressions, and drops records "
    "if `where` is false, null or empty. Expressions can use the value's fields and `kafka` "
    "with `topic`, `partition`, `offset`, `timestamp` (milliseconds), `timestamp_type` (0: time of "
    "the producer, 1: of the broker, -1: none), `key` and `headers`. In addition to the functions "
    "of JMESPath, `substr(text, start, length)`, `epoch_seconds_to_iso8601`, "
    "`epoch_millis_to_iso8601`, `epoch_micros_to_iso8601` and `epoch_millis_to_micro` are "
    "available. All expressions use the original record. If fields change, the result has no "
    "value schema.",
    make,
    Example(
        {
            "where": "meta.kind == 'web'",
            "fields.date": "substr(epoch_millis_to_iso8601(meta.at), `0`, `10`)",
            "fields.origin.offset": "kafka.offset",
        },
        {"value": {"url": "/a", "meta": {"kind": "web", "at": 1700000000123}}, "offset": 42},
        {
            "value": {
                "url": "/a",
                "meta": {"kind": "web", "at": 1700000000123},
                "date": "2023-11-14",
                "origin": {"offset": 42},
            }
        },
    ),
    keys=(
        Key(
            "where",
            "STRING",
            "Expression; records for which it is false, null or empty are dropped.",
            "",
        ),
        Key("keep", "BOOLEAN", "Keep all other fields of the value.", "true"),
        Key(
            "set-null",
            "BOOLEAN",
            "Set a field to null if its expression results in null; `false` leaves the field as it "
            "is.",
            "true",
        ),
    ),
    families={_FIELDS: "expression for the field with this path; dots separate nested fields."},
    needs_headers=True,
    is_column=True,
)
