"""The coordinator of a connector without commits."""

from __future__ import annotations

import threading

from coordinator.host import IdleCoordinator


def test_it_reports_that_it_runs_and_waits_for_its_stop() -> None:
    """The stop may come before it begins, and from any thread."""
    started = threading.Event()
    idle = IdleCoordinator(started.set)
    thread = threading.Thread(target=idle.run)
    thread.start()
    assert started.wait(30)
    assert thread.is_alive()
    idle.stop()
    thread.join(30)
    assert not thread.is_alive()
    idle.run()
