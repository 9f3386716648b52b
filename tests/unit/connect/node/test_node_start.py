"""The start of a node: children first, their events kept until the herder exists."""

from __future__ import annotations

import subprocess
import sys

from connect.node.node_start import BufferedEvents

HEAVY = ("confluent_kafka", "fastapi", "pandas", "pyarrow", "pydantic", "pyiceberg", "uvicorn")


def test_children_start_before_slow_imports() -> None:
    """The module that starts them imports none of the slow modules."""
    program = "import sys, connect.node.__main__; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.split())
    assert "connect.node.node_start" in modules
    assert modules.isdisjoint(HEAVY)


def test_events_wait_for_their_receiver() -> None:
    """They arrive once each, in order, before later events."""
    events = BufferedEvents()
    received: list[tuple[str, object]] = []
    events("worker", {"event": "a"})
    events("coordinator", {"event": "b"})
    events.deliver_to(lambda child, event: received.append((child, event["event"])))
    events("worker", {"event": "c"})
    assert received == [("worker", "a"), ("coordinator", "b"), ("worker", "c")]
