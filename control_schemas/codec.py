"""Encodes control events as record values, and decodes them.

::

    encode: events -> writer (values) -> datum (fastavro) + schemas (schema text) -> frame
    decode: frame -> avro (schema tree) -> datum (fastavro) -> reader, files, shapes -> events

Rules of this package:
- Encoded events are byte for byte equal to those of Iceberg's Java classes.
- Decoded data is untrusted: ``limits`` bounds every length, count, depth and cache, and ``decode``
  raises only MalformedEvent.
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
    """Encode an event as the value of a control record.

    All files of a DataWritten event must have the same partition type. Split offsets that are
    empty or exceed the file's size become null, as in Java.

    Raises:
        UnencodableEvent: a value is out of its type's range, files have different partition types,
            or the event is larger than readers accept.

    Source:
        Iceberg Kafka Connect 1.12.0, ``AvroUtil.encode``.
    """
    frame = write_frame(event)
    if len(frame) > FRAME_BYTES_MAX:
        raise UnencodableEvent(f"event of {len(frame)} bytes, more than {FRAME_BYTES_MAX}")
    return frame


def decode(frame: bytes) -> Event:
    """Decode an event from the value of a control record.

    Partition fields have the names that the writer used: match them by field id. Bytes after the
    datum are ignored.

    Raises:
        MalformedEvent: the value is not a valid event; it has the group, if that could be decoded.

    Source:
        Iceberg Kafka Connect 1.12.0, ``AvroUtil.decode``; differs in additional fields, see
        docs/decisions/0002-control-event-reader.md.
    """
    schema, start = split_frame(frame)
    return event_reader(schema)(frame[start:])
