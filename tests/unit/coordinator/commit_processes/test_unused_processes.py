"""The metric of a connector without commit processes."""

from __future__ import annotations

from connect.metrics import process_metrics
from coordinator.commit_processes.commit_processes import report_unused

NAME = "commit_processes_running"


def values() -> dict[str, float]:
    """The values by connector."""
    return {s[1]["connector"]: s[2] for s in process_metrics.PROCESS.snapshot()[1] if s[0] == NAME}


def test_a_connector_without_processes_has_no_value() -> None:
    """Also if it had some before; another connector keeps its value."""
    process_metrics.gauge(NAME, connector="unused").set(0)
    process_metrics.gauge(NAME, connector="used").set(2)
    version = process_metrics.PROCESS.version
    report_unused("unused")
    assert ("unused" in values(), values()["used"]) == (False, 2)
    assert process_metrics.PROCESS.version > version
    process_metrics.gauge(NAME, connector="unused").set(1)
    assert values()["unused"] == 1
    for connector in ("unused", "used"):
        process_metrics.gauge(NAME, connector=connector).drop()
