"""Incidents and their notification, to a real HTTP server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from connect.clock import SystemClock
from connect.gateways.webhook import Webhook, WebhookAddress
from connect.metrics.process_metrics import Sample
from connect.node.node_requests import ReportedStatus, TaskStatus
from connect.node.notifications.incidents import (
    INCIDENTS_MAX,
    DeadLetterRates,
    Incident,
    IncidentLog,
    Limits,
)
from connect.node.notifications.notifier import RETRY_POLICY, WEBHOOK_URL, NodeView, Notifier
from connect.redaction.secret_values import KNOWN, MASK
from tests.support.webhook_server import WebhookServer

LIMITS = Limits(
    valid_through_s=3_600, dead_letters_per_minute=5, retention_left_s=86_400, delay_ms=10_000
)


class SteppedClock(SystemClock):
    """Time that passes when the test says so."""

    now = 1_000_000

    def now_ms(self) -> int:
        """The instant that is set."""
        return self.now

    def monotonic_ms(self) -> int:
        """The same."""
        return self.now


class NotifierHarness:
    """A notifier with statuses and metrics that a test sets."""

    def __init__(self, server: WebhookServer) -> None:
        self.clock = SteppedClock()
        self.statuses: list[ReportedStatus] = []
        self.samples: list[Sample] = []
        view = NodeView("w:1", "g", lambda: self.statuses, lambda: self.samples)
        address = WebhookAddress(
            server.url, "Bearer hook-secret-78", key=WEBHOOK_URL, is_of_operator=True
        )
        webhook = Webhook(address, self.clock, RETRY_POLICY)
        self.notifier = Notifier(view, webhook, LIMITS, self.clock)

    def turns(self, seconds: int) -> None:
        """A turn every five seconds."""
        for _ in range(seconds // 5):
            self.notifier.turn()
            self.clock.now += 5_000


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    """The operator's endpoint."""
    server = WebhookServer()
    yield server
    server.close()


@pytest.fixture
def harness(server: WebhookServer) -> NotifierHarness:
    """A notifier for it."""
    return NotifierHarness(server)


def failed(trace: str | None = None, worker_id: str = "w:1") -> ReportedStatus:
    task = TaskStatus(0, "FAILED", worker_id, trace)
    return ReportedStatus("c", "RUNNING", "w:1", (task,), None)


RUNNING = ReportedStatus("c", "RUNNING", "w:1", (TaskStatus(0, "RUNNING", "w:1"),))


def test_an_incident_is_sent_once_and_its_end_once(
    server: WebhookServer, harness: NotifierHarness
) -> None:
    """With key, reason and times; secrets are masked; the authorization is sent."""
    KNOWN.add("incident-secret-1")
    harness.statuses = [failed("DataLost: incident-secret-1 is gone\nstack")]
    harness.turns(5)
    assert server.messages == []
    harness.turns(300)
    (firing,) = server.messages
    assert firing == {
        "status": "firing",
        "key": "g/c/task_failed/0",
        "kind": "task_failed",
        "connector": "c",
        "task": 0,
        "text": "Task 0 of connector c is FAILED",
        "reason": f"DataLost: {MASK} is gone",
        "since": "1970-01-01T00:16:40.000+00:00",
        "cluster": "g",
        "node": "w:1",
    }
    harness.statuses = [RUNNING]
    harness.turns(300)
    resolved = server.messages[1]
    assert (resolved["status"], resolved["key"]) == ("resolved", firing["key"])
    assert resolved["text"] == "Resolved: Task 0 of connector c is FAILED"
    assert len(server.messages) == 2
    assert set(server.authorizations) == {"Bearer hook-secret-78"}


def test_tasks_that_are_run_together_are_one_incident(
    server: WebhookServer, harness: NotifierHarness
) -> None:
    """It names them, up to a limit."""
    first = TaskStatus(0, "FAILED", "w:1", "why")
    together = [replace(first, id=task, runs_in=0) for task in range(1, 13)]
    harness.statuses = [ReportedStatus("c", "RUNNING", "w:1", (first, *together[:2]))]
    harness.turns(300)
    (firing,) = server.messages
    assert (firing["key"], firing["reason"]) == ("g/c/task_failed/0", "why")
    assert firing["text"] == "Tasks 0, 1, 2 of connector c are FAILED"
    harness.statuses = [ReportedStatus("d", "RUNNING", "w:1", (first, *together))]
    harness.turns(300)
    assert "Tasks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more of connector d are FAILED" in {
        message["text"] for message in server.messages
    }


def test_states_that_change_quickly_are_one_incident(
    server: WebhookServer, harness: NotifierHarness
) -> None:
    """A task that fails and restarts every few seconds."""
    for _ in range(20):
        harness.statuses = [failed()]
        harness.turns(5)
        harness.statuses = [RUNNING]
        harness.turns(5)
    assert [m["status"] for m in server.messages] == ["firing"]


def test_each_metric_beyond_its_limit_is_an_incident(
    server: WebhookServer, harness: NotifierHarness
) -> None:
    """Valid-through timestamp, dead letters, retention and tables."""
    harness.statuses = [RUNNING]
    connector = {"connector": "c"}

    def samples(age_s: float, left_s: float, tables: float, letters: float) -> list[Sample]:
        return [
            ("valid_through_age_seconds", connector, age_s),
            ("control_retention_left_seconds", connector, left_s),
            ("tables_failed", connector, tables),
            ("records_dead_lettered", {"connector": "c", "task": "0"}, letters),
        ]

    for _ in range(30):
        harness.samples = samples(3_600, -1, 0, 7_000)
        harness.turns(5)
    assert server.messages == []
    for number in range(30):
        harness.samples = samples(7_200, 3_600, 2, 7_000 + number)
        harness.turns(5)
    assert {m["kind"]: m["text"] for m in server.messages} == {
        "valid_through_old": "Tables of connector c are complete only up to 120 minutes ago",
        "retention_at_risk": "The control topic of connector c deletes events of uncommitted "
        "files in 1.0 hours",
        "tables_failed": "2 tables of connector c cannot be committed",
        "dead_letters": "Connector c rejected 8 records in a minute",
    }
    assert len(server.messages) == 4
    harness.samples = samples(0, -1, 0, 7_029)
    harness.turns(120)
    assert [m["status"] for m in server.messages[4:]] == ["resolved"] * 4


def test_a_node_notifies_only_of_its_own_units(
    server: WebhookServer, harness: NotifierHarness
) -> None:
    """Otherwise every node of a cluster would send the same message."""
    harness.statuses = [failed(worker_id="w:2")]
    harness.turns(60)
    assert server.messages == []


def test_a_message_is_repeated_until_it_is_accepted(
    server: WebhookServer, harness: NotifierHarness
) -> None:
    """With pauses; incidents that end before are not sent."""
    server.status = 503
    harness.statuses = [failed()]
    harness.turns(120)
    attempts = len(server.authorizations)
    assert 3 <= attempts <= 7
    server.status = 204
    harness.turns(600)
    assert [m["kind"] for m in server.messages] == ["task_failed"]
    harness.statuses = [RUNNING]
    server.status = 503
    harness.turns(60)
    harness.statuses = [failed()]
    harness.turns(60)
    server.status = 204
    harness.turns(600)
    assert [m["status"] for m in server.messages] == ["firing"]


@pytest.mark.parametrize("status", [400, 403, 302])
def test_a_refused_message_is_dropped(
    server: WebhookServer, harness: NotifierHarness, status: int
) -> None:
    """It is neither repeated nor sent to the address of a redirect."""
    server.status = status
    harness.statuses = [failed()]
    harness.turns(300)
    assert len(server.authorizations) == 1
    assert server.messages == []


def test_the_number_of_incidents_is_bounded() -> None:
    """Further incidents wait; those that end before their delivery are dropped."""
    log = IncidentLog(delay_ms=0)
    many = [Incident((str(n), "connector_failed", None), "") for n in range(INCIDENTS_MAX + 2)]
    log.update(many, 0)
    assert len(list(log.due(0))) == INCIDENTS_MAX
    log.update(many[INCIDENTS_MAX:], 10)
    assert list(log.due(10)) == []
    log.update(many[INCIDENTS_MAX:], 20)
    assert len(list(log.due(20))) == 2


def test_a_reset_counter_is_no_rate() -> None:
    """Neither the first total nor a lower one counts as dead letters of this minute."""
    rates = DeadLetterRates()
    for now_ms, total in ((0, 1_000.0), (10_000, 1_002.0), (20_000, 5.0), (30_000, 6.0)):
        rates.add({"c": total}, now_ms)
    assert rates.of("c") == 1
    assert rates.of("other") == 0
    rates.add({}, 40_000)
    assert rates.of("c") == 0
