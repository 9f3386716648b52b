"""Incidents of connectors, found in statuses and metrics, and which of them to notify. Pure.

Rules of this file:
- A node finds the incidents of the units that are placed on it, so each has one node that notifies.
- An incident is notified once when it has lasted for the delay, and once when it has been gone for
  as long. One that ends before it was delivered is not notified at all.
- Nothing grows without bound: further incidents wait until others are gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from connect.metrics.process_metrics import Sample
from connect.node.node_requests import ReportedStatus

INCIDENTS_MAX: Final = 1_000
REASON_CHARS: Final = 1_000
TASKS_NAMED_MAX: Final = 10
RATE_MS: Final = 60_000

Kind: TypeAlias = Literal[
    "connector_failed",
    "task_failed",
    "valid_through_old",
    "dead_letters",
    "retention_at_risk",
    "tables_failed",
]
IncidentKey: TypeAlias = tuple[str, Kind, int | None]
"""Connector, kind, and task or None."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From which values on a metric is an incident.

    Attributes:
        valid_through_s: age of the valid-through timestamp.
        dead_letters_per_minute: more dead letters than this in a minute.
        retention_left_s: time until the control topic deletes an announcement.
        delay_ms: how long an incident must last, or be gone.
    """

    valid_through_s: float
    dead_letters_per_minute: int
    retention_left_s: float
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident.

    Attributes:
        key: connector, kind and task.
        text: one sentence for people.
        reason: the trace of a failure; None for metrics.
    """

    key: IncidentKey
    text: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Notification:
    """What is to be sent now.

    Attributes:
        incident: the incident, as last found.
        is_resolved: it is gone.
        since_ms: when it was found first, or last if it is gone; wall clock.
    """

    incident: Incident
    is_resolved: bool
    since_ms: int


@dataclass(slots=True)
class DeadLetterRates:
    """Dead letters of the last minute by connector, from totals that only grow or start at 0."""

    _totals: dict[str, deque[tuple[int, float]]] = field(default_factory=dict)

    def add(self, totals: Mapping[str, float], now_ms: int) -> None:
        """Take the present totals; connectors that are gone are forgotten."""
        self._totals = {name: self._totals.get(name, deque()) for name in totals}
        for name, total in totals.items():
            samples = self._totals[name]
            if samples and total < samples[-1][1]:
                samples.clear()  # the tasks have moved, or their process started again
            samples.append((now_ms, total))
            while len(samples) > 1 and samples[1][0] <= now_ms - RATE_MS:
                samples.popleft()

    def of(self, connector: str) -> float:
        """Return the dead letters of the last minute."""
        samples = self._totals.get(connector)
        return samples[-1][1] - samples[0][1] if samples else 0.0


def find_incidents(
    statuses: Iterable[ReportedStatus],
    samples: Sequence[Sample],
    rates: DeadLetterRates,
    *,
    worker_id: str,
    limits: Limits,
) -> Iterator[Incident]:
    """Yield the incidents of the units on a node.

    Args:
        statuses: of all connectors.
        samples: metrics of this node.
        rates: dead letters of the tasks on this node.
        worker_id: this node.
        limits: see there.
    """
    gauges: dict[str, dict[str, float]] = {}
    for name, labels, number in samples:
        if name in _GAUGES:
            gauges.setdefault(labels["connector"], {})[name] = number
    for status in statuses:
        name = status.name
        if status.worker_id == worker_id:
            if status.state == "FAILED":
                text = f"Connector {name} is FAILED"
                yield Incident((name, "connector_failed", None), text, _reason(status.trace))
            if status.state in {"RUNNING", "FAILED"}:
                yield from _of_metrics(name, gauges.get(name, {}), limits)
        for task in status.tasks:
            is_own = task.worker_id == worker_id and task.runs_in is None
            if is_own and task.state == "FAILED":
                text = _failed_tasks_text(status, task.id)
                yield Incident((name, "task_failed", task.id), text, _reason(task.trace))
        count = rates.of(name)
        if count > limits.dead_letters_per_minute:
            text = f"Connector {name} rejected {count:g} records in a minute"
            yield Incident((name, "dead_letters", None), text)


@dataclass(slots=True)
class _IncidentState:
    incident: Incident
    first_ms: int
    last_ms: int
    is_delivered: bool = False


@dataclass(slots=True)
class IncidentLog:
    """Every incident that is present, or was notified and is not resolved.

    Args:
        delay_ms: how long an incident must last, or be gone.
    """

    delay_ms: int
    _known: dict[IncidentKey, _IncidentState] = field(default_factory=dict)

    def update(self, incidents: Iterable[Incident], now_ms: int) -> None:
        """Take the incidents that are present now."""
        for incident in incidents:
            logged = self._known.get(incident.key)
            if logged is not None:
                logged.incident, logged.last_ms = incident, now_ms
            elif len(self._known) < INCIDENTS_MAX:
                self._known[incident.key] = _IncidentState(incident, now_ms, now_ms)
        for key, logged in list(self._known.items()):
            if not logged.is_delivered and now_ms - logged.last_ms > self.delay_ms:
                del self._known[key]

    def due(self, now_ms: int) -> Iterator[Notification]:
        """Yield what is to be sent; again until it is delivered."""
        for logged in list(self._known.values()):
            is_gone = logged.last_ms < now_ms
            if logged.is_delivered and is_gone and now_ms - logged.last_ms >= self.delay_ms:
                yield Notification(logged.incident, is_resolved=True, since_ms=logged.last_ms)
            elif not logged.is_delivered and logged.last_ms - logged.first_ms >= self.delay_ms:
                yield Notification(logged.incident, is_resolved=False, since_ms=logged.first_ms)

    def delivered(self, notification: Notification) -> None:
        """Note that a notification needs no further attempt."""
        key = notification.incident.key
        if notification.is_resolved:
            self._known.pop(key, None)
        elif key in self._known:
            self._known[key].is_delivered = True


def _of_metrics(name: str, gauges: Mapping[str, float], limits: Limits) -> Iterator[Incident]:
    age_s = gauges.get("valid_through_age_seconds", 0.0)
    if age_s > limits.valid_through_s:
        text = f"Tables of connector {name} are complete only up to {age_s / 60:.0f} minutes ago"
        yield Incident((name, "valid_through_old", None), text)
    left_s = gauges.get("control_retention_left_seconds", -1.0)
    if 0 <= left_s < limits.retention_left_s:
        text = (
            f"The control topic of connector {name} deletes events of uncommitted files in "
            f"{left_s / 3600:.1f} hours"
        )
        yield Incident((name, "retention_at_risk", None), text)
    failed = gauges.get("tables_failed", 0.0)
    if failed > 0:
        text = f"{failed:g} tables of connector {name} cannot be committed"
        yield Incident((name, "tables_failed", None), text)


def _failed_tasks_text(status: ReportedStatus, first: int) -> str:
    """Return the sentence on a failed task and the tasks that run in it: one incident."""
    others = [str(task.id) for task in status.tasks if task.runs_in == first]
    if not others:
        return f"Task {first} of connector {status.name} is FAILED"
    shown = [str(first), *others][:TASKS_NAMED_MAX]
    more = 1 + len(others) - len(shown)
    listed = ", ".join(shown) + (f" and {more} more" if more else "")
    return f"Tasks {listed} of connector {status.name} are FAILED"


def _reason(trace: str | None) -> str | None:
    return None if trace is None else trace.partition("\n")[0][:REASON_CHARS]


_GAUGES: Final = frozenset(
    {"valid_through_age_seconds", "control_retention_left_seconds", "tables_failed"}
)
