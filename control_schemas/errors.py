"""Errors of control events.

They are independent of ``connect.errors``, because this package does not import ``connect``, which
maps them.
"""

from __future__ import annotations


class MalformedEvent(Exception):  # noqa: N818 - the field's term, as Fenced and DataLost
    """A frame is not a valid control event.

    Attributes:
        reason: description of the error, bounded in length.
        group_id: connect group id of the event, None if it could not be decoded. With it, a reader
            can skip an invalid event of another connector.
    """

    code = "malformed_event"

    def __init__(self, reason: str, *, group_id: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason[:_REASON_CHARACTERS_MAX]
        self.group_id = group_id

    def __str__(self) -> str:
        return self.reason if self.group_id is None else f"{self.reason} [group={self.group_id}]"


class UnencodableEvent(ValueError):  # noqa: N818 - pairs with MalformedEvent
    """An event has a value that the wire format cannot represent: a bug of the caller."""

    code = "unencodable_event"


_REASON_CHARACTERS_MAX = 400
