"""Events of the sink's ancestor are recognised, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from control_schemas.codec import encode
from control_schemas.legacy import legacy_event
from tests.support.frames import FILE, old_frame, start, written


def test_announcements_of_a_group_are_found() -> None:
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
