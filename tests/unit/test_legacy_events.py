"""Events of the sink's ancestor are recognised, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest

from control_schemas.codec import encode
from control_schemas.frame import frame_prefix
from control_schemas.legacy import legacy_event
from tests.frames import FILE, start, written

NAMESPACE = "io.tabular.iceberg.connect.events"


def old_frame(payload: str, group_id: str) -> bytes:
    """An event of the old format, as far as it is looked at: schema, and group at the end."""
    field = {"name": "payload", "type": {"type": "record", "name": payload, "fields": []}}
    schema = {"type": "record", "name": "Event", "namespace": NAMESPACE, "fields": [field]}
    text = group_id.encode()
    assert len(text) < 64  # one byte of Avro length
    return frame_prefix(json.dumps(schema)) + b"\x01" * 40 + bytes([len(text) * 2]) + text


def test_announcements_of_a_group_are_told() -> None:
    """Files announced for our group, for another one, and an event that announces none."""
    found = legacy_event(old_frame("CommitResponsePayload", "cg-control-orders"))
    assert found is not None
    assert found.is_announcement
    assert found.is_of("cg-control-orders")
    assert not found.is_of("control-orders")
    assert not found.is_of("orders")
    ready = legacy_event(old_frame("CommitReadyPayload", "cg-control-orders"))
    assert ready is not None
    assert not ready.is_announcement


def test_long_group_names() -> None:
    """The length before the name may take two bytes."""
    group = "g" * 300
    frame = old_frame("CommitResponsePayload", "x")[:-2] + b"\xd8\x04" + group.encode()
    found = legacy_event(frame)
    assert found is not None
    assert found.is_of(group)
    assert not found.is_of(group[1:])


@pytest.mark.parametrize("frame", [b"", b"\xc2\x01", encode(start()), encode(written(FILE))])
def test_other_frames_are_none_of_them(frame: bytes) -> None:
    """Today's events, and what is no event."""
    assert legacy_event(frame) is None
