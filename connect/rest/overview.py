"""Every connector in one answer, with the caller's role for each: what a list of them needs.

Rules of this file:
- Nothing is asked of the broker: states and figures are those this node has heard last, so that
  any number of pages may look every few seconds.
- A figure that this node has not heard of is null, never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from connect.rest.auth import Caller
from connect.rest.herder_api import ConnectorStatus, HerderApi, UnknownConnectorError
from connect.rest.routes import Answer, Call

REASON_CHARS: Final = 300
FIGURES: Final = {
    "not_in_files": "lag_records",
    "in_files_not_committed": "records_uncommitted",
    "dead_letters": "records_dead_lettered",
    "tables_failed": "tables_failed",
}
_VALID_THROUGH: Final = "valid_through_timestamp_seconds"
_AGE: Final = "valid_through_age_seconds"


class Overview:
    """``GET /icefloe/v1/overview``.

    Args:
        herder: whose connectors.
    """

    def __init__(self, herder: HerderApi) -> None:
        self._herder = herder

    def show(self, call: Call) -> Answer:
        """Connectors that the caller may read."""
        caller = call.caller
        figures = self._herder.figures((*FIGURES.values(), _VALID_THROUGH, _AGE))
        shown = []
        for name in self._herder.connectors():
            if caller.may("read", name):
                try:
                    status = self._herder.status(name)
                except UnknownConnectorError:
                    continue  # deleted meanwhile
                shown.append(_connector(status, caller, figures.get(name, {})))
        about = {"name": caller.name, "node_role": caller.role(None)}
        return Answer(200, {"caller": about, "connectors": shown})


def _connector(
    status: ConnectorStatus, caller: Caller, figures: Mapping[str, float]
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": status.name,
        "role": caller.role(status.name),
        "state": status.state,
        "worker_id": status.worker_id,
        "tasks": dict(Counter(task.state for task in status.tasks)),
        "reason": _reason(status),
    }
    for field, metric in FIGURES.items():
        found[field] = int(figures[metric]) if metric in figures else None
    for field, metric in (("valid_through_ms", _VALID_THROUGH), ("valid_through_age_ms", _AGE)):
        found[field] = int(figures[metric] * 1000) if metric in figures else None
    return found


def _reason(status: ConnectorStatus) -> str | None:
    """First line of the first trace: the connector's own, else that of a task."""
    traces = (status.trace, *(task.trace for task in status.tasks))
    trace = next((trace for trace in traces if trace), None)
    return None if trace is None else trace.partition("\n")[0][:REASON_CHARS]
