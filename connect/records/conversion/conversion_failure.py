"""Why a value does not fit its column."""

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
]

REASONS: Final[frozenset[str]] = frozenset(get_args(Reason))


class Unconvertible(ValueError):  # noqa: N818 - a verdict about a value, mapped to RecordError
    """The value does not fit its column; becomes a RecordError where the record is known.

    Args:
        reason: bounded identifier, the RecordError's ``code``.
        message: what is wrong, without the value itself.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.path: list[str] = []

    def inside(self, name: str) -> Unconvertible:
        """Prefix the path of the column, going outwards; return self."""
        self.path.insert(0, name)
        return self


def wrong_type(value: object, column: str) -> Unconvertible:
    """Build the refusal of a value whose Python type never goes into such a column."""
    return Unconvertible("wrong_type", f"a {kind_of(value)} does not go into a {column} column")


def kind_of(value: object) -> str:
    """Name of a value's kind, for messages."""
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
