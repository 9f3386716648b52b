"""The aggregates of a connector, parsed: windows, groups, functions and their output.

Rules of this file:
- This module parses all texts. Validation, the worker and tests use the same functions.
- The definition decides what the stored state means. State of another definition is never used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from connect.errors import ConfigError

PREFIX: Final = "icefloe.aggregate."
COLUMNS: Final = "icefloe.aggregate.columns"
TIME_FIELD: Final = "icefloe.aggregate.time-field"
WINDOW: Final = "icefloe.aggregate.window"
SLIDE: Final = "icefloe.aggregate.slide"
WATERMARK: Final = "icefloe.aggregate.watermark"
GROUP_BY: Final = "icefloe.aggregate.group-by"
FUNCTIONS: Final = "icefloe.aggregate.functions"
TOPIC: Final = "icefloe.aggregate.topic"
TOPIC_PARTITIONS: Final = "icefloe.aggregate.topic.partitions"
EMIT: Final = "icefloe.aggregate.emit"
INTERVAL: Final = "icefloe.aggregate.interval-ms"
STATE_PARTITIONS: Final = "icefloe.aggregate.state.partitions"
MISSING_STATE: Final = "icefloe.aggregate.state.missing"
REQUIRED: Final = (COLUMNS, TIME_FIELD, WINDOW, WATERMARK, FUNCTIONS, TOPIC)

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
CODE: Final = "aggregate"
EVERY_ROW: Final = "*"

Emit: TypeAlias = Literal["update", "final"]
MissingState: TypeAlias = Literal["fail", "empty"]
FunctionName: TypeAlias = Literal["count", "sum", "min", "max", "avg", "approx_distinct"]
NAMES: Final[tuple[FunctionName, ...]] = ("count", "sum", "min", "max", "avg", "approx_distinct")
SLIDES_MAX: Final = 1_000
"""Windows that contain one record: each of them is a row of each batch."""
DURATION_DAYS_MAX: Final = 36_500
EVENT_TIME_MICROS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""First and last event time: the years 1 to 9999. The ends of a window fit a timestamp then."""

_UNITS_MS: Final[Mapping[str, int]] = {
    "ms": 1,
    "millisecond": 1,
    "s": 1_000,
    "second": 1_000,
    "m": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_DURATION: Final = re.compile(r"([0-9]{1,9})\s*([a-z]+)", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FUNCTION: Final = re.compile(r"(?:(\w+)\s*=\s*)?(\w+)\s*\(\s*(\*|\w+)\s*\)")


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """A value of each group and window.

    Attributes:
        name: name of the value.
        function: what is computed.
        column: its input; ``*`` counts records.
    """

    name: str
    function: FunctionName
    column: str


@dataclass(frozen=True, slots=True)
class Aggregation:
    """``icefloe.aggregate.*`` of one connector.

    Attributes:
        columns: the fields of records that are used, as names with Spark SQL types.
        time_field: the column with the event time.
        window_ms: length of a window.
        slide_ms: distance between two windows; equal to ``window_ms`` for tumbling windows.
        watermark_ms: how late a record may be.
        group_by: columns whose values make a group.
        functions: the values of a group and window.
        topic: topic of the results.
        topic_partitions: partitions of that topic if Icefloe creates it.
        emit: ``update`` sends each change, ``final`` only windows that are complete.
        interval_ms: time between two batches.
        state_partitions: parts of the state, which Spark computes in parallel.
        missing_state: what happens if the state for the source offsets does not exist.
        location: where the state is stored.
    """

    columns: str
    time_field: str
    window_ms: int
    slide_ms: int
    watermark_ms: int
    group_by: tuple[str, ...]
    functions: tuple[AggregateFunction, ...]
    topic: str
    topic_partitions: int
    emit: Emit
    interval_ms: int
    state_partitions: int
    missing_state: MissingState
    location: str

    @classmethod
    def of(cls, values: Mapping[str, Any], location: str) -> Aggregation:
        """Return the aggregates of a configuration.

        Args:
            values: typed values by key.
            location: where the state is stored.

        Raises:
            ConfigError: ``aggregate``; a duration or a function is invalid.
        """
        window_ms = duration_ms(values[WINDOW])
        return cls(
            columns=values[COLUMNS],
            time_field=values[TIME_FIELD].strip(),
            window_ms=window_ms,
            slide_ms=duration_ms(values[SLIDE]) if values[SLIDE] else window_ms,
            watermark_ms=duration_ms(values[WATERMARK]),
            group_by=tuple(values[GROUP_BY] or ()),
            functions=parse_functions(values[FUNCTIONS]),
            topic=values[TOPIC].strip(),
            topic_partitions=values[TOPIC_PARTITIONS],
            emit=values[EMIT],
            interval_ms=values[INTERVAL],
            state_partitions=values[STATE_PARTITIONS],
            missing_state=values[MISSING_STATE],
            location=location.strip(),
        )

    @property
    def used_columns(self) -> tuple[str, ...]:
        """The columns that windows, groups and functions use."""
        inputs = (each.column for each in self.functions if each.column != EVERY_ROW)
        return tuple(dict.fromkeys((self.time_field, *self.group_by, *inputs)))

    @property
    def definition(self) -> str:
        """A digest of what decides the meaning of the state."""
        parts = (
            " ".join(self.columns.split()),
            self.time_field,
            self.window_ms,
            self.slide_ms,
            self.group_by,
            [(each.name, each.function, each.column) for each in self.functions],
            self.emit,
            self.state_partitions,
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def duration_ms(text: str) -> int:
    """Parse a duration such as ``10 minutes``, ``10m`` or ``500ms``.

    Raises:
        ConfigError: ``aggregate``; the text is not a positive duration, or too long.
    """
    match = _DURATION.fullmatch(text.strip())
    unit = match[2].lower() if match else ""
    factor = _UNITS_MS.get(unit) or _UNITS_MS.get(unit.removesuffix("s") if len(unit) > 1 else "")
    if match is None or factor is None or not int(match[1]):
        raise ConfigError(
            "a duration is a positive number with a unit, such as 10 minutes, 30s or 1h", code=CODE
        )
    duration = int(match[1]) * factor
    if duration > DURATION_DAYS_MAX * _UNITS_MS["d"]:
        raise ConfigError(f"a duration is at most {DURATION_DAYS_MAX} days", code=CODE)
    return duration


def parse_functions(entries: Sequence[str]) -> tuple[AggregateFunction, ...]:
    """Parse entries such as ``total=sum(amount)``; without a name it is ``sum_amount``.

    Raises:
        ConfigError: ``aggregate``; an entry is not a function, or a name occurs twice.
    """
    functions: list[AggregateFunction] = []
    for entry in entries:
        match = _FUNCTION.fullmatch(entry.strip())
        named = match[2].lower() if match else ""
        function = next((name for name in NAMES if name == named), None)
        if match is None or function is None:
            raise ConfigError(
                f"{entry.strip()!r} is not a function: write <name>=<function>(<column>) with one "
                f"of {', '.join(NAMES)}; count(*) counts records",
                code=CODE,
            )
        column = match[3]
        if column == EVERY_ROW and function != "count":
            raise ConfigError(f"{function}(*) needs a column", code=CODE)
        default = function if column == EVERY_ROW else f"{function}_{column}"
        name = match[1] or default
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a name for a value", code=CODE)
        functions.append(AggregateFunction(name, function, column))
    names = [each.name.lower() for each in functions]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two functions have the name {name}", code=CODE)
    return tuple(functions)
