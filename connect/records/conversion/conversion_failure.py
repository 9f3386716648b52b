"""Errors of values that cannot be converted to the type of their column."""

from __future__ import annotations

from typing import Final, Literal, get_args

Reason = Literal[
    "wrong_type",
    "bad_text",
    "out_of_range",
    "lost_fraction",
    "lost_digits",
    "not_a_number",
    "wrong_length",
    "zone",
    "required_null",
    "ambiguous_name",
    "unsupported_type",
    "too_deep",
    "unavailable_value",
]

REASONS: Final[frozenset[str]] = frozenset(get_args(Reason))
TYPE_CONFLICTS: Final[frozenset[str]] = frozenset(
    {
        "wrong_type",
        "bad_text",
        "out_of_range",
        "lost_fraction",
        "lost_digits",
        "not_a_number",
        "wrong_length",
        "zone",
    }
)
"""Reasons by which a column of another type would take the value."""


class Unconvertible(ValueError):  # noqa: N818 - internal; becomes a RecordError
    """A value cannot be converted to its column's type. The caller turns it into a RecordError.

    Args:
        reason: one of ``REASONS``; the RecordError's ``code``.
        message: the reason as text, without the value.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.path: list[str] = []

    def inside(self, name: str) -> Unconvertible:
        """Prepend a name to the column's path and return this error."""
        self.path.insert(0, name)
        return self


def wrong_type(value: object, column: str) -> Unconvertible:
    """Build the error for a value of a type that the column does not accept."""
    return Unconvertible("wrong_type", f"a {kind_of(value)} cannot be converted to {column}")


def kind_of(value: object) -> str:
    """Return the name of a value's type, for messages."""
    return _KINDS.get(type(value).__name__, type(value).__name__)


_KINDS: Final = {
    "int": "integer",
    "Int8": "integer",
    "Int16": "integer",
    "Int32": "integer",
    "float": "double",
    "Float32": "float",
    "str": "text",
    "bool": "boolean",
    "dict": "map",
    "NoneType": "null",
}
