"""What one configuration key is, and how its text becomes a value.

Types and error sentences are those of Kafka's ``ConfigDef``, because clients show them to people
and some parse them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
"""What Java's ``trim`` takes away: control characters too, no-break spaces not."""
_BLANKS: Final = " \t\n\r\f\v"

Raw = Mapping[str, "str | None"]
"""A configuration as sent: text, or null, by key."""
KeyType = Literal[
    "STRING", "INT", "LONG", "SHORT", "DOUBLE", "BOOLEAN", "LIST", "CLASS", "PASSWORD"
]
Importance = Literal["HIGH", "MEDIUM", "LOW"]
Width = Literal["NONE", "SHORT", "MEDIUM", "LONG"]
Check = Callable[[Any], "str | None"]
"""Gets the typed value, returns what is wrong with it or None."""

_RANGES = {
    "SHORT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "LONG": (-(2**63), 2**63 - 1),
}
_INTEGER = re.compile(r"[+-]?\d+")  # of any script, as in Java
_DIGITS_MAX = 1_000


class _Absent:
    """A default that says: the key must be given."""

    def __repr__(self) -> str:
        return "required"


REQUIRED = _Absent()


@dataclass(frozen=True, slots=True)
class Key:
    """One key, declared once.

    Attributes:
        name: full name, or the name behind the prefix for keys of plugins.
        type: Kafka's type name.
        doc: one line; ends up in the REST answers and in docs/reference/configuration.md.
        default: as text; None is Kafka's null; ``REQUIRED`` when there is none.
        importance: Kafka's word.
        group: heading in user interfaces; None for none.
        order: place within the group, Kafka's numbering; -1 for none.
        width: input width in user interfaces.
        label: display name; the key's name when None.
        unit: ms, bytes, records ... or None.
        check: one or more checks of the typed value.
        choices: offered values; also enforced unless ``is_open``.
        is_secret: the value is never shown, logged or put in an error.
        java_only: why the key is accepted without effect; None when it has effect.
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
        """True when there is no default."""
        return isinstance(self.default, _Absent)

    @property
    def default_text(self) -> str | None:
        """The default as REST answers show it."""
        return None if isinstance(self.default, _Absent) else self.default


@dataclass(frozen=True, slots=True)
class Prefix:
    """A family of keys whose ends are free, such as ``iceberg.catalog.``."""

    name: str
    doc: str
    example: str
    is_secret_bearing: bool = False
    java_only: str | None = None


@dataclass(frozen=True, slots=True)
class Typed:
    """A typed value, or the sentences that say why there is none."""

    value: Any = None
    errors: tuple[str, ...] = field(default=())


def invalid(name: str, value: object, why: str) -> str:
    """Kafka's sentence about a bad value."""
    return f"Invalid value {displayed(value)} for configuration {name}: {why}"


def missing(name: str) -> str:
    """Kafka's sentence about a required key that is not there."""
    return f'Missing required configuration "{name}" which has no default value.'


def displayed(value: object) -> str:
    """A value as Java prints it in error messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(displayed(item) for item in value) + "]"
    return str(value)


class Sentence(str):
    """What a check returns that says all by itself, and not only what is wrong with a value."""

    __slots__ = ()


def typed(key: Key, text: str | None, *, name: str | None = None) -> Typed:
    """Turn text into the key's type and check it.

    Args:
        key: the declaration.
        text: the text as given, or None for null; not the default.
        name: what a text that cannot be read is said to be of; the key's name when None.

    Returns:
        The value, and the sentences about it as Kafka would write them: a text that cannot be
        read at all also fails the check as null, when the key has a check.
    """
    try:
        value = _convert(key.type, text)
    except ValueError as error:
        first = _sentence(name or key.name, key, text, str(error))
        return Typed(None, (first, *_checked(key, None)))
    return Typed(value, _checked(key, value))


def _sentence(name: str, key: Key, value: object, why: str) -> str:
    if isinstance(why, Sentence):
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
    """Split at commas with the blanks around them; empty text is the empty list."""
    first, *rest = text.split(",")
    if not rest:
        return [first] if first else []
    # no pattern of blanks around a comma: each blank of a long row would look for it
    *inner, last = rest
    return [first.rstrip(_BLANKS), *(part.strip(_BLANKS) for part in inner), last.lstrip(_BLANKS)]


def one_of(choices: Sequence[str]) -> Check:
    """The value is one of these."""

    def check(value: Any) -> str | None:
        if value in choices:
            return None
        return f"String must be one of: {', '.join(choices)}"

    return check


def at_least(low: int) -> Check:
    """The number is not null and not less."""

    def check(value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        return None if value >= low else f"Value must be at least {low}"

    return check


def between(low: float, high: float) -> Check:
    """The number is not null and in the closed range."""

    def check(value: Any) -> str | None:
        if value is None:
            return "Value must be non-null"
        if value < low:
            return f"Value must be at least {low}"
        return None if value <= high else f"Value must be no more than {high}"

    return check


def any_case(*choices: str) -> Check:
    """The text is one of these, in upper or lower case."""

    def check(value: Any) -> str | None:
        if value is not None and value.upper() in choices:
            return None
        return f"String must be one of (case insensitive): {', '.join(choices)}"

    return check


def where_read(check: Check) -> Check:
    """A limit of ours, not of Kafka's: of what cannot be read it says nothing more."""
    return lambda value: None if value is None else check(value)


def not_empty(value: Any) -> str | None:
    """The text is not empty."""
    return "String may not be empty" if value == "" else None


def not_null(value: Any) -> str | None:
    """There is a value."""
    return "entry must be non null" if value is None else None


@dataclass(frozen=True, slots=True)
class Distinct:
    """The list of the key ``name`` has entries, none of them empty or there twice.

    Kafka leaves doubles out where a configuration is used, and refuses them where one is judged.
    """

    name: str

    def __call__(self, value: Any) -> str | None:
        """What is wrong with the list."""
        why = None
        if value is None:
            why = "values must not be null."
        elif not value:
            why = "must not be empty. Valid values include: any non-empty value"
        elif len(set(value)) < len(value):
            why = "values must not be duplicated."
        elif "" in value:
            why = "values must not be empty."
        return None if why is None else Sentence(f"Configuration '{self.name}' {why}")


def all_of(*checks: Check) -> Check:
    """The first complaint counts."""

    def check(value: Any) -> str | None:
        return next((why for each in checks if (why := each(value)) is not None), None)

    return check
