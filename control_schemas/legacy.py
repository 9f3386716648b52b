"""Events of the sink's ancestor (``io.tabular``, before 0.6.19), recognised and not decoded.

They have the same frame, but a schema of their own namespace. Later releases of that sink write
today's events. Of the old ones it matters only whose they are and whether they announce files: an
announcement that is in no table yet must not be passed over.

Source:
    tabular-io/iceberg-kafka-connect, ``io.tabular.iceberg.connect.events.Event`` and
    ``CommitResponsePayload``.
"""

from __future__ import annotations

from dataclasses import dataclass

from control_schemas.errors import MalformedEvent
from control_schemas.frame import split_frame

NAMESPACE = b"io.tabular.iceberg.connect.events"
_ANNOUNCEMENT = b"CommitResponsePayload"


@dataclass(frozen=True, slots=True)
class LegacyEvent:
    """One event of the old format.

    Attributes:
        datum: the Avro datum.
        is_announcement: whether it says that files were written.
    """

    datum: bytes
    is_announcement: bool

    def is_of(self, group_id: str) -> bool:
        """Whether it is an event of this group: the group is the datum's last field."""
        text = group_id.encode()
        return self.datum.endswith(_zigzag(len(text)) + text)


def legacy_event(frame: bytes) -> LegacyEvent | None:
    """The event of the old format that a record value holds; None when it holds something else."""
    try:
        schema, start = split_frame(frame)
    except MalformedEvent:
        return None
    if NAMESPACE not in schema:
        return None
    return LegacyEvent(frame[start:], _ANNOUNCEMENT in schema)


def _zigzag(number: int) -> bytes:
    """Avro's form of a number that is not negative."""
    left, out = number << 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
