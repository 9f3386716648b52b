"""Rules for connectors that write event-time aggregates to a topic.

Rules of this file:
- Nothing is ignored: a key that has no effect on aggregates is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from connect.config.aggregation import (
    COLUMNS,
    EVERY_ROW,
    FUNCTIONS,
    GROUP_BY,
    PREFIX,
    SLIDE,
    SLIDES_MAX,
    TIME_FIELD,
    TOPIC,
    WINDOW,
    WINDOW_END,
    WINDOW_START,
    AggregateFunction,
    duration_ms,
    parse_functions,
)
from connect.config.key import invalid
from connect.config.keys.iceberg_keys import CONTROL_TOPIC, topic_name
from connect.config.table_formats import AGGREGATE, AGGREGATE_LOCATION, FORMAT
from connect.errors import ConfigError
from connect.java_compat.java_regex import compile_java_regex, fault
from connect.records.transforms.sql.sql_columns import columns_schema
from connect.validation.config_view import ConfigView
from connect.validation.query_rules import catalog_tables

_NO_TABLE: Final = "aggregates are written to a topic, not to a table; unset it"
_NO_EFFECT: Final = {
    "errors.deadletterqueue.table": "set errors.deadletterqueue.topic.name instead",
    "icefloe.outputs": "aggregates have the topic of icefloe.aggregate.topic; unset it",
    "icefloe.end": "a run of aggregates has no end; unset it",
}
_TABLE_PREFIXES: Final = ("iceberg.tables", "iceberg.table.", "iceberg.control.commit.")
_COMMIT: Final = f"results are sent every {PREFIX}interval-ms; unset it"
_OFF: Final = frozenset({"", "false"})
_NOT_NUMERIC: Final = (
    StringType,
    BinaryType,
    BooleanType,
    DateType,
    TimestampType,
    TimestamptzType,
)

Found = Iterator[tuple[str, str]]
Parsed = TypeVar("Parsed")


def aggregate_keys(view: ConfigView) -> Found:
    """`icefloe.aggregate.*` requires `icefloe.format=aggregate`, and is complete and valid."""
    own = [name for name in view.raw if name.startswith(PREFIX) and name != AGGREGATE_LOCATION]
    if view[FORMAT] != AGGREGATE:
        yield from ((name, f"{name} needs {FORMAT}={AGGREGATE}") for name in own if view.has(name))
        return
    yield from _without_effect(view)
    yield from _times(view)
    yield from _topic(view)
    yield from _columns(view)


def _without_effect(view: ConfigView) -> Found:
    for name, text in view.raw.items():
        if (text or "").strip().lower() in _OFF:
            continue
        why = _NO_EFFECT.get(name)
        if name == "iceberg.catalog" and not catalog_tables(view):
            why = _NO_TABLE
        if name.startswith(_TABLE_PREFIXES):
            why = _COMMIT if name.startswith("iceberg.control.") else _NO_TABLE
        if why is not None:
            yield name, f"{name} cannot be used with {FORMAT}={AGGREGATE}: {why}"
    name = "icefloe.fail-on-data-loss"
    if view[name] is False:
        yield (
            name,
            (
                f"{name} cannot be false with {FORMAT}={AGGREGATE}: lost records would be missing "
                "in windows that seem complete; unset it"
            ),
        )


def _times(view: ConfigView) -> Found:
    texts = {name: view[name] for name in (WINDOW, SLIDE)}
    lengths = {name: _parsed(duration_ms, text) for name, text in texts.items() if text}
    window, slide = lengths.get(WINDOW), lengths.get(SLIDE)
    if window is None or slide is None:
        return
    if slide > window:
        why = f"it is longer than {WINDOW}, so that records between two windows would be ignored"
        yield SLIDE, invalid(SLIDE, view[SLIDE], why)
    elif window // slide > SLIDES_MAX:
        why = f"a record would be in more than {SLIDES_MAX} windows"
        yield SLIDE, invalid(SLIDE, view[SLIDE], why)


def _topic(view: ConfigView) -> Found:
    topic = (view[TOPIC] or "").strip()
    if not topic:
        return
    pattern = view["topics.regex"] or ""
    if (why := topic_name(topic)) is not None:
        yield TOPIC, invalid(TOPIC, topic, why)
    elif topic in (view["topics"] or ()) or (
        pattern and fault(pattern) is None and compile_java_regex(pattern).fullmatch(topic)
    ):
        yield TOPIC, invalid(TOPIC, topic, "the connector reads it: set another topic")
    elif topic == view[CONTROL_TOPIC]:
        yield TOPIC, invalid(TOPIC, topic, "it is the control topic: set another topic")
    elif topic == view["errors.deadletterqueue.topic.name"]:
        yield TOPIC, invalid(TOPIC, topic, "it is the dead letter topic: set another topic")


def _columns(view: ConfigView) -> Found:
    text = view[COLUMNS]
    if not text:
        return
    try:
        schema = columns_schema(text)
    except ConfigError as error:
        yield COLUMNS, invalid(COLUMNS, text, error.message)
        return
    functions = _parsed(parse_functions, view[FUNCTIONS] or ()) or ()
    yield from _time_field(view, schema)
    yield from _groups(view, schema)
    yield from _inputs(schema, functions, {name.lower() for name in view[GROUP_BY] or ()})


def _time_field(view: ConfigView, schema: Schema) -> Found:
    name = (view[TIME_FIELD] or "").strip()
    if not name:
        return
    kind = _type_of(schema, name)
    if kind is None:
        yield TIME_FIELD, invalid(TIME_FIELD, name, f"it is not in {COLUMNS}")
    elif not isinstance(kind, TimestamptzType):
        yield TIME_FIELD, invalid(TIME_FIELD, name, "its type is not TIMESTAMP")


def _groups(view: ConfigView, schema: Schema) -> Found:
    names = view[GROUP_BY] or ()
    for name in names:
        kind = _type_of(schema, name)
        if kind is None:
            yield GROUP_BY, invalid(GROUP_BY, name, f"it is not in {COLUMNS}")
        elif not isinstance(kind, PrimitiveType):
            yield GROUP_BY, invalid(GROUP_BY, name, "a group is made of simple values")
        elif name.lower() in {WINDOW_START, WINDOW_END}:
            yield GROUP_BY, invalid(GROUP_BY, name, "the name is that of a window's boundary")
        elif names.count(name) > 1:
            yield GROUP_BY, invalid(GROUP_BY, name, "it is listed twice")


def _inputs(schema: Schema, functions: tuple[AggregateFunction, ...], groups: set[str]) -> Found:
    for each in functions:
        kind = None if each.column == EVERY_ROW else _type_of(schema, each.column)
        if each.column != EVERY_ROW and kind is None:
            yield FUNCTIONS, invalid(FUNCTIONS, each.column, f"it is not in {COLUMNS}")
        elif kind is not None and not isinstance(kind, PrimitiveType):
            yield FUNCTIONS, invalid(FUNCTIONS, each.column, "functions take simple values")
        elif each.function in {"sum", "avg"} and isinstance(kind, _NOT_NUMERIC):
            yield FUNCTIONS, invalid(FUNCTIONS, each.column, f"{each.function} takes numbers")
        if each.name.lower() in groups | {WINDOW_START, WINDOW_END}:
            why = "a column of the result has this name; name the value: <name>=<function>(...)"
            yield FUNCTIONS, invalid(FUNCTIONS, each.name, why)


def _type_of(schema: Schema, name: str) -> Any:
    return next((f.field_type for f in schema.fields if f.name == name), None)


def _parsed(parse: Callable[[Any], Parsed], value: Any) -> Parsed | None:
    """Return the parsed value; None if the checks of single keys report an error."""
    try:
        return parse(value)
    except ConfigError:
        return None
