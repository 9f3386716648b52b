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
        is_announcement: whether it says that files were written.
    """

    datum: bytes
    is_announcement: bool

    def is_of(self, group_id: str) -> bool:
        """Whether it is an event of this group: the group is the datum's last field."""
        return self.datum.endswith(encoded(_STRING, group_id))


def legacy_event(frame: bytes) -> LegacyEvent | None:
    """The event of the old format that a record value holds; None when it holds something else."""
    try:
        schema, start = split_frame(frame)
    except MalformedEvent:
        return None
    if NAMESPACE not in schema:
        return None
    return LegacyEvent(frame[start:], _ANNOUNCEMENT in schema)
