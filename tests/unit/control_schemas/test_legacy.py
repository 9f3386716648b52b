"""Events of the sink's ancestor are recognised, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from control_schemas.codec import encode
from control_schemas.legacy import legacy_event
from tests.support.frames import FILE, old_frame, start, written


def test_announcements_of_a_group_are_found() -> None:
    """Files of our group, files of another group, and an event without files."""
    found = legacy_event(old_frame("CommitResponsePayload", "cg-control-orders"))
    assert found is not None
    assert found.is_announcement
    assert found.is_of("cg-control-orders")
    assert not found.is_of("control-orders")
    assert not found.is_of("orders")
    ready = legacy_event(old_frame("CommitReadyPayload", "cg-control-orders"))
    assert ready is not None
    assert not ready.is_announcement


def test_long_group_names_are_read() -> None:
    """The length before the name may have two bytes."""
    group = "g" * 300
    frame = old_frame("CommitResponsePayload", "x")[:-2] + b"\xd8\x04" + group.encode()
    found = legacy_event(frame)
    assert found is not None
    assert found.is_of(group)
    assert not found.is_of(group[1:])


@pytest.mark.parametrize("frame", [b"", b"\xc2\x01", encode(start()), encode(written(FILE))])
def test_other_frames_are_no_old_events(frame: bytes) -> None:
    """Present events, and frames that are no events."""
    assert legacy_event(frame) is None
