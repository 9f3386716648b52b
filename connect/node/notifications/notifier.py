"""Notifies an operator's webhook of incidents, on a thread of its own.

Rules of this file:
- The herder and the REST API never wait for the webhook: this thread reads their state and sends.
- A message that could not be sent is sent again, with back-off; meanwhile incidents are collected
  (``incidents``), so an incident that comes and goes while the webhook is away is not sent.
- A message that the server refuses is counted and given up: it would be refused again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from connect.backoff import BackoffPolicy
from connect.clock import Clock
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError, RetriableError
from connect.gateways.webhook import Webhook, WebhookAddress
from connect.logs import logger
from connect.metrics.process_metrics import Sample, counter
from connect.node.node_requests import ReportedStatus
from connect.node.notifications.incidents import (
    DeadLetterRates,
    IncidentLog,
    Limits,
    Notification,
    find_incidents,
)
from connect.redaction.secret_values import KNOWN

INTERVAL_S: Final = 5.0
WEBHOOK_URL: Final = "icefloe.notifications.webhook.url"
RETRY_POLICY: Final = BackoffPolicy(first_ms=5_000, longest_ms=300_000)

_log = logger("notifications")


@dataclass(frozen=True, slots=True)
class NodeView:
    """What is known of the connectors.

    Attributes:
        group_id: its cluster.
        statuses: returns the status of every connector.
        samples: returns the metrics of this node.
    """

    worker_id: str
    group_id: str
    statuses: Callable[[], Sequence[ReportedStatus]]
    samples: Callable[[], Sequence[Sample]]


class Notifier:
    """Finds incidents and sends them.

    Args:
        webhook: where they are sent.
        limits: from which values on a metric is an incident.
        interval_s: between two searches.
    """

    def __init__(
        self,
        view: NodeView,
        webhook: Webhook,
        limits: Limits,
        clock: Clock,
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._view = view
        self._webhook = webhook
        self._limits = limits
        self._clock = clock
        self._interval_s = interval_s
        self._incidents = IncidentLog(limits.delay_ms)
        self._rates = DeadLetterRates()
        self._stopping = threading.Event()

    @classmethod
    def of(
        cls, config: NodeConfig, resolved: Mapping[str, str], view: NodeView, clock: Clock
    ) -> Notifier | None:
        """Return the notifier of a node; None without ``icefloe.notifications.webhook.url``.

        Args:
            config: the node's configuration.
            resolved: its properties, placeholders resolved.
            view: the connectors.
            clock: time.

        Raises:
            ConfigError: ``webhook``, the address is no HTTP address.
        """
        url = resolved.get(WEBHOOK_URL)
        if not url:
            return None
        values = config.values
        limits = Limits(
            valid_through_s=values["icefloe.notifications.valid-through.age.ms"] / 1000,
            dead_letters_per_minute=values["icefloe.notifications.dead-letters.per.minute"],
            retention_left_s=values["icefloe.notifications.retention.left.ms"] / 1000,
            delay_ms=values["icefloe.notifications.delay.ms"],
        )
        address = WebhookAddress(
            url,
            resolved.get("icefloe.notifications.webhook.authorization"),
            key=WEBHOOK_URL,
            is_of_operator=True,
        )
        return cls(view, Webhook(address, clock, RETRY_POLICY), limits, clock)

    def start(self) -> None:
        """Notify on a separate thread until ``stop``."""
        threading.Thread(target=self._run, name="notifications", daemon=True).start()

    def stop(self) -> None:
        """Stop; a request that is under way is not waited for."""
        self._stopping.set()

    def turn(self) -> None:
        """Find incidents, and send what is due."""
        now_ms = self._clock.now_ms()
        samples = self._view.samples()
        totals: dict[str, float] = {}
        for name, labels, number in samples:
            if name == "records_dead_lettered":
                totals[labels["connector"]] = totals.get(labels["connector"], 0.0) + number
        self._rates.add(totals, now_ms)
        incidents = find_incidents(
            self._view.statuses(),
            samples,
            self._rates,
            worker_id=self._view.worker_id,
            limits=self._limits,
        )
        self._incidents.update(incidents, now_ms)
        if self._clock.monotonic_ms() >= self._webhook.retry_at_ms:
            self._send(now_ms)

    def _send(self, now_ms: int) -> None:
        for notification in self._incidents.due(now_ms):
            if self._stopping.is_set():
                return
            try:
                self._webhook.post(json.dumps(self._message(notification)).encode())
            except RetriableError as e:
                counter("notifications", outcome="failed").inc()
                delay_ms = self._webhook.retry_at_ms - self._clock.monotonic_ms()
                _log.warning(
                    "notification not sent, repeated later", error=str(e), delay_ms=delay_ms
                )
                return
            except ConfigError as e:
                counter("notifications", outcome="refused").inc()
                _log.error("notification refused", error=str(e))
            else:
                counter("notifications", outcome="sent").inc()
            self._incidents.delivered(notification)

    def _message(self, notification: Notification) -> dict[str, Any]:
        incident = notification.incident
        connector, kind, task = incident.key
        parts = (self._view.group_id, connector, kind, *(() if task is None else (str(task),)))
        text = f"Resolved: {incident.text}" if notification.is_resolved else incident.text
        since = datetime.fromtimestamp(notification.since_ms / 1000, UTC)
        return {
            "status": "resolved" if notification.is_resolved else "firing",
            "key": "/".join(parts),
            "kind": kind,
            "connector": connector,
            "task": task,
            "text": KNOWN.mask(text),
            "reason": KNOWN.mask(incident.reason) if incident.reason else None,
            "since": since.isoformat(timespec="milliseconds"),
            "cluster": self._view.group_id,
            "node": self._view.worker_id,
        }

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self.turn()
