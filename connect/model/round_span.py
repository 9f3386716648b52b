"""Spans of commit rounds, as values that worker and coordinator send to their node.

Rules of this file:
- The trace id is the commit id of the round. The id of the round's own span is the lower half of
  it. So the spans of a round join, although processes of several nodes make them.
- Attributes are names, numbers and codes of errors; never texts of errors, which may hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import UUID

Attribute: TypeAlias = str | int | bool

_LOWER_HALF: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class RoundSpan:
    """One span of the trace of a round.

    Attributes:
        name: what was done; one of few.
        commit_id: the round.
        span_id: 64 bits, not 0.
        parent_id: span id of the parent; None for the span of the round itself.
        start_ms: milliseconds since 1970 UTC.
        end_ms: milliseconds since 1970 UTC.
        attributes: names with the prefix ``icefloe.``.
        error_code: bounded code of the error that ended it; None without an error.
    """

    name: str
    commit_id: UUID
    span_id: int
    parent_id: int | None
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    error_code: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the form in which spans are sent between processes."""
        return {
            "name": self.name,
            "commit_id": str(self.commit_id),
            "span_id": self.span_id,
            "parent_id": self.parent_id,
            "start_ms": self.start_ms,
            "end_ms": self.end_ms,
            "attributes": dict(self.attributes),
            "error_code": self.error_code,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RoundSpan:
        """Return the span from which ``to_json`` made this form."""
        return cls(**{**data, "commit_id": UUID(data["commit_id"])})


def round_span_id(commit_id: UUID) -> int:
    """Return the id of the round's own span, which is the parent of all others."""
    return commit_id.int & _LOWER_HALF


def new_span_id(random: UUID) -> int:
    """Return a span id from a random UUID, whose variant bits make it differ from 0."""
    return random.int & _LOWER_HALF
