"""What goes wrong on the wire.

Two errors and no tree: a frame that cannot be read, and an event that cannot be written. They
stand outside ``connect.errors`` because this package imports nothing; ``connect`` maps them.
"""

from __future__ import annotations


class MalformedEvent(Exception):  # noqa: N818 - the field's term, as Fenced and DataLost
    """A frame is no control event that this reader accepts.

    Attributes:
        reason: what is wrong, bounded in length, without the frame's content at large.
        group_id: the connect group the event names, where the envelope could still be read, so
            that a reader can pass over another connector's odd event; None when unknown.
    """

    code = "malformed_event"

    def __init__(self, reason: str, *, group_id: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason[:_REASON_CHARACTERS_MAX]
        self.group_id = group_id

    def __str__(self) -> str:
        return self.reason if self.group_id is None else f"{self.reason} [group={self.group_id}]"


class UnencodableEvent(ValueError):  # noqa: N818 - pairs with MalformedEvent
    """An event holds a value that the wire format has no room for: a bug of the caller."""

    code = "unencodable_event"


_REASON_CHARACTERS_MAX = 400
