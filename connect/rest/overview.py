"""Every connector in one answer, with the caller's role for each: what a list of them needs.

Rules of this file:
- Nothing is asked of the broker: states are those this node has heard last, figures those that
  the nodes have which run something, so that any number of pages may look every few seconds.
- A figure that nobody has heard of is null, never zero.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from connect.rest.auth import Caller
from connect.rest.errors import not_found
from connect.rest.figures import ClusterFigures, Figures
from connect.rest.herder_api import ConnectorStatus, HerderApi, UnknownConnectorError
from connect.rest.routes import Answer, Call
from connect.secret_values import KNOWN

REASON_CHARS: Final = 300


class Overview:
    """``GET /icefloe/v1/overview``, and dead letters, whose count is one of its figures.

    Args:
        herder: whose connectors.
        figures: of the cluster.
    """

    def __init__(self, herder: HerderApi, figures: ClusterFigures) -> None:
        self._herder = herder
        self._figures = figures

    def show(self, call: Call) -> Answer:
        """Connectors that the caller may read."""
        caller = call.caller
        statuses = []
        for name in self._herder.connectors():
            if caller.may("read", name):
                try:
                    statuses.append(self._herder.status(name))
                except UnknownConnectorError:
                    continue  # deleted meanwhile
        found = self._figures.of(call, statuses)
        about = {"name": caller.name, "node_role": caller.role(None)}
        missing = [{"worker_id": n, "reason": reason} for n, reason in found.missing.items()]
        shown = [_connector(s, caller, found.by_connector[s.name]) for s in statuses]
        return Answer(200, {"caller": about, "missing": missing, "connectors": shown})

    def dead_letters(self, call: Call) -> Answer:
        """``GET /icefloe/v1/connectors/<name>/dead-letters``: the count is of all its tasks."""
        name = call.path["name"]
        with not_found(name):
            found = self._herder.extension(name, "dead-letters")
            gathered = self._figures.of(call, [self._herder.status(name)])
        count = gathered.by_connector[name]["dead_letters"]
        return Answer(200, {**KNOWN.masked(found), "records": count})


def _connector(status: ConnectorStatus, caller: Caller, figures: Figures) -> dict[str, Any]:
    return {
        "name": status.name,
        "role": caller.role(status.name),
        "state": status.state,
        "worker_id": status.worker_id,
        "tasks": dict(Counter(task.state for task in status.tasks)),
        "reason": _reason(status),
        **figures,
    }


def _reason(status: ConnectorStatus) -> str | None:
    """First line of the first trace: the connector's own, else that of a task."""
    traces = (status.trace, *(task.trace for task in status.tasks))
    trace = next((trace for trace in traces if trace), None)
    return None if trace is None else KNOWN.mask(trace).partition("\n")[0][:REASON_CHARS]
