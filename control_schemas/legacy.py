"""Recognizes events of the tabular sink (``io.tabular``, before 0.6.19) without decoding them.

They have the same frame, but a schema in another namespace. Later versions of that sink write the
current events. Only the group of an old event and its type matter: an announcement that is not
committed yet must not be skipped.

Source:
    tabular-io/iceberg-kafka-connect, ``io.tabular.iceberg.connect.events.Event`` and
    ``CommitResponsePayload``.
"""

from __future__ import annotations

from dataclasses import dataclass

from control_schemas.avro import AvroType
from control_schemas.datum import encoded, wire_schema
from control_schemas.errors import MalformedEvent
from control_schemas.frame import split_frame

NAMESPACE = b"io.tabular.iceberg.connect.events"
_ANNOUNCEMENT = b"CommitResponsePayload"
_STRING = wire_schema(AvroType("string"))


@dataclass(frozen=True, slots=True)
class LegacyEvent:
    """One event of the old format.

    Attributes:
        datum: the Avro datum.
        is_announcement: whether it announces files.
    """

    datum: bytes
    is_announcement: bool

    def is_of(self, group_id: str) -> bool:
        """Return whether the event belongs to a group, which is the datum's last field."""
        return self.datum.endswith(encoded(_STRING, group_id))


def legacy_event(frame: bytes) -> LegacyEvent | None:
    """Return the event of the old format in a record value; None for any other value."""
    try:
        schema, start = split_frame(frame)
    except MalformedEvent:
        return None
    if NAMESPACE not in schema:
        return None
    return LegacyEvent(frame[start:], _ANNOUNCEMENT in schema)
