"""Declaration of configuration keys, and conversion of their texts to values.

Types and error messages are those of Kafka's ``ConfigDef``, because clients display and parse them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
"""Characters that Java's ``trim`` removes: includes control characters, not no-break spaces."""
_BLANKS: Final = " \t\n\r\f\v"

Raw = Mapping[str, "str | None"]
"""A configuration as sent: text or null by key."""
KeyType = Literal[
    "STRING", "INT", "LONG", "SHORT", "DOUBLE", "BOOLEAN", "LIST", "CLASS", "PASSWORD"
]
Importance = Literal["HIGH", "MEDIUM", "LOW"]
Width = Literal["NONE", "SHORT", "MEDIUM", "LONG"]
Check = Callable[[Any], "str | None"]
"""Checks a typed value; returns an error message or None."""

_RANGES = {
    "SHORT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "LONG": (-(2**63), 2**63 - 1),
}
_INTEGER = re.compile(r"[+-]?\d+")  # digits of any script, as in Java
_DIGITS_MAX = 1_000
_TIME = re.compile(r"(\d{1,12}) *(ms|s|sec|m|min|h|d)")
_MS = {"ms": 1, "s": 1_000, "sec": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}


class _Absent:
    """Marks a key without default, which is required."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = _Absent()


@dataclass(frozen=True, slots=True)
class Key:
    """The declaration of a configuration key.

    Attributes:
        name: full name; for keys of plugins, the name without prefix.
        type: Kafka's type name.
        doc: one line for the REST answers and docs/reference/configuration.md.
        default: default as text; None is Kafka's null; ``REQUIRED`` for a required key.
        importance: Kafka's importance.
        group: heading in user interfaces, or None.
        order: position within the group, as in Kafka; -1 for none.
        width: input width in user interfaces.
        label: display name; None for the key's name.
        unit: ms, bytes, records and so on, or None.
        check: check of the typed value.
        choices: recommended values; other values are errors unless ``is_open``.
        is_secret: whether the value must not be displayed, logged or part of an error.
        java_only: the reason why the key has no effect; None if it has an effect.
    """

    name: str
    type: KeyType
    doc: str
    default: str | _Absent | None = None
    importance: Importance = "MEDIUM"
    group: str | None = None
    order: int = -1
    width: Width = "NONE"
    label: str | None = None
    unit: str | None = None
    check: Check | None = None
    choices: tuple[str, ...] = ()
    is_open: bool = False
    is_secret: bool = False
    java_only: str | None = None

    @property
    def is_required(self) -> bool:
        """Return whether the key has no default."""
        return isinstance(self.default, _Absent)

    @property
    def default_text(self) -> str | None:
        """Return the default as displayed in REST answers."""
        return None if isinstance(self.default, _Absent) else self.default


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of keys with free suffixes, such as ``iceberg.catalog.``."""

    name: str
    doc: str
    example: str
    is_secret_bearing: bool = False
    java_only: str | None = None


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A typed value, or the error messages."""

    value: Any = None
    errors: tuple[str, ...] = field(default=())


def invalid(name: str, value: object, why: str) -> str:
    """Return Kafka's error message for an invalid value."""
    return f"Invalid value {displayed(value)} for configuration {name}: {why}"


def missing(name: str) -> str:
    """Return Kafka's error message for a missing required key."""
    return f'Missing required configuration "{name}" which has no default value.'


def displayed(value: object) -> str:
    """Format a value as Java does in error messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(displayed(item) for item in value) + "]"
    return str(value)


class CompleteMessage(str):
    """A complete error message of a check; other messages are a reason only."""

    __slots__ = ()


def typed(key: Key, text: str | None, *, name: str | None = None) -> TypedValue:
    """Convert text to the type of a key and check the value.

    Args:
        key: the declaration of the key.
        text: the text as sent, or None for null; not the default.
        name: the name in errors of texts that cannot be parsed; None for the key's name.

    Returns:
        The value or Kafka's error messages. As in Kafka, a text that cannot be parsed also fails
        the key's check as null.
    """
    try:
        value = _convert(key.type, text)
    except ValueError as error:
        sentence = _sentence(name or key.name, key, text, f"{error}{_in_unit(key, text)}")
        return TypedValue(None, (sentence, *_checked(key, None)))
    return TypedValue(value, _checked(key, value))


def _in_unit(key: Key, text: str | None) -> str:
    """Return how to write a time such as ``10s`` for a key of milliseconds, or an empty text."""
    match = _TIME.fullmatch((text or "").strip().lower()) if key.unit == "ms" else None
    if match is None:
        return ""
    return f"; write milliseconds: {int(match[1]) * _MS.get(match[2], 86_400_000)}"


def _sentence(name: str, key: Key, value: object, why: str) -> str:
    if isinstance(why, CompleteMessage):
        return str(why)
    return invalid(name, "[hidden]" if key.is_secret else value, why)


def _checked(key: Key, value: Any) -> tuple[str, ...]:
    if key.choices and not key.is_open:
        why = one_of(key.choices)(value)
        if why is not None:
            return (_sentence(key.name, key, value, why),)
    why = key.check(value) if key.check is not None else None
    return () if why is None else (_sentence(key.name, key, value, why),)


def _convert(kind: KeyType, text: str | None) -> Any:
    if text is None:
        return None
    trimmed = text.strip(_JAVA_BLANKS)
    if kind == "BOOLEAN":
        lowered = trimmed.lower()
        if lowered not in {"true", "false"}:
            raise ValueError("Expected value to be either true or false")
        return lowered == "true"
    if kind in _RANGES:
        low, high = _RANGES[kind]
        is_number = len(trimmed) <= _DIGITS_MAX and _INTEGER.fullmatch(trimmed)
        if not is_number or not low <= int(trimmed) <= high:
            raise ValueError(f"Not a number of type {kind}")
        return int(trimmed)
    if kind == "DOUBLE":
        try:
            return float(trimmed)
        except ValueError:
            raise ValueError("Not a number of type DOUBLE") from None
    if kind == "LIST":
        return list_of(trimmed)
    return text if kind == "PASSWORD" else trimmed


def list_of(text: str) -> list[str]:
    """Split a text at commas and trim the parts. An empty text is the empty list."""
    first, *rest = text.split(",")
    if not rest:
        return [first] if first else []
    # a pattern of blanks around a comma would take quadratic time for many blanks
    *inner, last = rest
    return [first.rstrip(_BLANKS), *(part.strip(_BLANKS) for part in inner), last.lstrip(_BLANKS)]


def one_of(choices: Sequence[str]) -> Check:
    """Return a check that the value is one of the choices."""

    def check(value: Any) -> str | None:
        if value in choices:
            return None
        return f"String must be one of: {', '.join(choices)}"

    return check


def at_least(low: int) -> Check:
    """Return a check that the number is not null and at least the limit."""

    def check(value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        return None if value >= low else f"Value must be at least {low}"

    return check


def between(low: float, high: float) -> Check:
    """Return a check that the number is not null and in the closed range."""

    def check(value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        if value < low:
            return f"Value must be at least {low}"
        return None if value <= high else f"Value must be no more than {high}"

    return check


def any_case(*choices: str) -> Check:
    """Return a check that the text is one of the choices in any case."""

    def check(value: Any) -> str | None:
        if value is not None and value.upper() in choices:
            return None
        return f"String must be one of (case insensitive): {', '.join(choices)}"

    return check


def where_read(check: Check) -> Check:
    """Return a check for parsed values only: unlike Kafka's checks, it ignores unparsable texts."""
    return lambda value: None if value is None else check(value)


def not_empty(value: Any) -> str | None:
    """Check that the text is not empty."""
    return "String may not be empty" if value == "" else None


def not_null(value: Any) -> str | None:
    """Check that the value is not null."""
    return "entry must be non null" if value is None else None


@dataclass(frozen=True, slots=True)
class Distinct:
    """Checks that the list of the key ``name`` has entries, and no empty or duplicate entries.

    Kafka removes duplicates when it uses a configuration, but rejects them in validation.
    """

    name: str

    def __call__(self, value: Any) -> str | None:
        """Return the error message of a list, or None."""
        why = None
        if value is None:
            why = "values must not be null."
        elif not value:
            why = "must not be empty. Valid values include: any non-empty value"
        elif len(set(value)) < len(value):
            why = "values must not be duplicated."
        elif "" in value:
            why = "values must not be empty."
        return None if why is None else CompleteMessage(f"Configuration '{self.name}' {why}")


def all_of(*checks: Check) -> Check:
    """Return a check that returns the first error of several checks."""

    def check(value: Any) -> str | None:
        return next((why for each in checks if (why := each(value)) is not None), None)

    return check
