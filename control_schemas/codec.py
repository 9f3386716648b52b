"""Control events to record values and back.

::

    encode: events -> writer (values) -> datum (fastavro) + schemas (schema text) -> frame
    decode: frame -> avro (schema tree) -> datum (fastavro) -> reader, files, shapes -> events

Rules of this package:
- What is written is byte for byte what Iceberg's Java classes write for the same event.
- Nothing that is read is trusted: ``limits`` bounds every length, count, depth and cache, and
  ``decode`` raises MalformedEvent and nothing else.
"""

from __future__ import annotations

from control_schemas.errors import MalformedEvent, UnencodableEvent
from control_schemas.events import Event
from control_schemas.frame import split_frame
from control_schemas.limits import FRAME_BYTES_MAX
from control_schemas.reader import event_reader
from control_schemas.writer import write_frame

__all__ = ["MalformedEvent", "UnencodableEvent", "decode", "encode"]


def encode(event: Event) -> bytes:
    """Write one event as the value of a control record.

    All files of a DataWritten event must have one partition type. Split offsets that are empty or
    past the file's size are written as null, as Java does.

    Raises:
        UnencodableEvent: a value its type has no room for, files of two partition types, or more
            bytes than a reader takes.

    Source:
        Iceberg Kafka Connect 1.12.0, ``AvroUtil.encode``.
    """
    frame = write_frame(event)
    if len(frame) > FRAME_BYTES_MAX:
        raise UnencodableEvent(f"event of {len(frame)} bytes, more than {FRAME_BYTES_MAX}")
    return frame


def decode(frame: bytes) -> Event:
    """Read one event from the value of a control record.

    Partition fields come with their names as written: match them by field id. Bytes behind the
    datum are ignored.

    Raises:
        MalformedEvent: no event that this reader accepts; names the group where it is known.

    Source:
        Iceberg Kafka Connect 1.12.0, ``AvroUtil.decode``; differs in additional fields, see
        docs/decisions/0002-control-event-reader.md.
    """
    schema, start = split_frame(frame)
    return event_reader(schema)(frame[start:])
