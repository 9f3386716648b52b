"""Sends lineage events of the connectors on this node, on a thread of its own.

Rules of this file:
- OpenLineage's library is imported only if ``icefloe.lineage.enabled`` is true.
- Who reports an event never waits for the receiver: events wait in a bounded queue, and a new event
  is dropped while the queue is full.
- Events are sent in order. One that could not be sent is sent again, with back-off; one that the
  receiver refuses is counted and given up.
- A log line about a receiver that fails is written at most once a minute.
- At its end the node waits a short time for what is not sent yet.
"""

from __future__ import annotations

import importlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from connect.backoff import Backoff, BackoffPolicy
from connect.clock import Clock
from connect.config.node.lineage_keys import LINEAGE_KAFKA_PREFIX
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.gateways.catalog.catalog_libraries import is_installed
from connect.gateways.kafka.kafka_properties import client_properties
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.model.lineage_event import LineageEvent
from connect.node.lineage.lineage_runs import ConnectorFacts, LineageRuns

EVENTS_MAX: Final = 1_000
TICK_S: Final = 0.5
CLOSE_TIMEOUT_S: Final = 3.0
WARNING_INTERVAL_MS: Final = 60_000
RETRY_POLICY: Final = BackoffPolicy(first_ms=1_000, longest_ms=60_000)
_LIBRARY: Final = "openlineage.client"
_NEEDED: Final = {
    "http": ("icefloe.lineage.transport.url", "OPENLINEAGE_URL"),
    "kafka": ("icefloe.lineage.transport.topic", None),
    "file": ("icefloe.lineage.transport.log_file_path", None),
}

_log = logger("lineage")


class LineageReporter:
    """Sends events of runs.

    Args:
        send: sends one event (``connect.gateways.openlineage.Transport``).
        facts: returns what is known of a connector; None if it sends no lineage.
        namespace: of the jobs.
        interval_ms: shortest time between two events of a connector that runs.
        events_max: that wait.
        close_timeout_s: longest time that the end waits for the receiver.
    """

    def __init__(
        self,
        send: Callable[[LineageEvent], None],
        facts: Callable[[str], ConnectorFacts | None],
        clock: Clock,
        *,
        namespace: str,
        interval_ms: int,
        events_max: int = EVENTS_MAX,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> None:
        self._send = send
        self._clock = clock
        self._runs = LineageRuns(
            namespace, facts, clock, interval_ms=interval_ms, emit=self._queue_event
        )
        self._events_max = events_max
        self._close_timeout_s = close_timeout_s
        self._waiting: deque[LineageEvent] = deque()
        self._backoff = Backoff(RETRY_POLICY)
        self._send_at_ms = 0
        self._warn_at_ms = 0
        self._wakes = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)

    @classmethod
    def of(
        cls,
        config: NodeConfig,
        resolved: Mapping[str, str],
        environ: Mapping[str, str],
        facts: Callable[[str], ConnectorFacts | None],
        clock: Clock,
    ) -> LineageReporter | None:
        """Return the reporter of a node; None unless ``icefloe.lineage.enabled`` is true.

        Args:
            config: the node's configuration.
            resolved: its properties, placeholders resolved.
            environ: the process's environment, with variables of OpenLineage.
            facts: returns what is known of a connector.
            clock: time and identities.

        Raises:
            ConfigError: ``library_missing``; ``lineage``, the transport cannot be made.
        """
        if not config.values["icefloe.lineage.enabled"]:
            return None
        if not is_installed(_LIBRARY):
            raise ConfigError(
                f"icefloe.lineage.enabled needs the library {_LIBRARY}, which is not installed on "
                "this node: pip install 'icefloe[lineage]'",
                code="library_missing",
            )
        return cls(
            _transport(config, resolved, environ).send,
            facts,
            clock,
            namespace=resolved.get("icefloe.lineage.namespace") or config.group_id,
            interval_ms=config.values["icefloe.lineage.interval.ms"],
        )

    def start(self) -> None:
        """Send on a separate thread until ``close``."""
        self._thread.start()

    def stop(self) -> None:
        """Do nothing: connectors still end, and their last events follow until ``close``."""

    def received(self, child: str, event: Mapping[str, Any]) -> None:
        """Take an event of a child process; returns at once."""
        self._runs.received(child, event)

    def close(self) -> None:
        """End all runs, and send what waits if the receiver takes it within a few seconds."""
        self._runs.abort_all()
        self._closing.set()
        self._wakes.set()
        if self._thread.is_alive():
            self._thread.join(self._close_timeout_s)
        if unsent := len(self._waiting):
            counter("lineage_events", outcome="dropped").inc(unsent)
            _log.warning("lineage events not sent before the end of the node", events=unsent)

    def turn(self) -> None:
        """Send what waits, unless an attempt failed a short time ago."""
        self._runs.emit_due()
        if self._clock.monotonic_ms() >= self._send_at_ms or self._closing.is_set():
            while self._waiting and self._try(self._waiting[0]):
                self._waiting.popleft()

    def _try(self, event: LineageEvent) -> bool:
        """Send an event; return whether it needs no further attempt."""
        try:
            self._send(event)
        except RetriableError as error:
            now_ms = self._clock.monotonic_ms()
            self._send_at_ms = now_ms + (self._backoff.failed(now_ms) or 0)
            self._failed("failed", error)
            return False
        except IcefloeError as error:
            self._failed("refused", error)
        else:
            counter("lineage_events", outcome="sent").inc()
        self._backoff.reset()
        return True

    def _failed(self, outcome: str, error: IcefloeError | None) -> None:
        """Count an event that was not sent, and log it if nothing was logged for a minute."""
        counter("lineage_events", outcome=outcome).inc()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._warn_at_ms:
            self._warn_at_ms = now_ms + WARNING_INTERVAL_MS
            _log.warning(
                "lineage event not sent",
                outcome=outcome,
                waiting=len(self._waiting),
                error=None if error is None else str(error),
            )

    def _queue_event(self, event: LineageEvent) -> None:
        if len(self._waiting) >= self._events_max:
            self._failed("dropped", None)
            return
        self._waiting.append(event)
        self._wakes.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wakes.wait(TICK_S)
            self._wakes.clear()
            self.turn()
        self.turn()


def _transport(config: NodeConfig, resolved: Mapping[str, str], environ: Mapping[str, str]) -> Any:
    """Return a ``connect.gateways.openlineage.Transport``, and import that module."""
    values = config.values
    kind = values["icefloe.lineage.transport.type"]
    needed, variable = _NEEDED[kind]
    target = resolved.get(needed) or environ.get(variable or "")
    if not target:
        also = f" or the environment variable {variable}" if variable else ""
        raise ConfigError(
            f"set {needed}{also}: the type of the transport is {kind}", code="lineage"
        )
    openlineage = importlib.import_module("connect.gateways.openlineage")
    timeout_s = values["icefloe.lineage.transport.timeout"]
    if kind == "file":
        return openlineage.FileSender(target)
    if kind == "kafka":
        size = len(LINEAGE_KAFKA_PREFIX)
        own = {k[size:]: v for k, v in resolved.items() if k.startswith(LINEAGE_KAFKA_PREFIX)}
        properties = client_properties(resolved, own, prefix="producer.")
        return openlineage.KafkaSender(properties, target, timeout_s)
    endpoint = resolved.get("icefloe.lineage.transport.endpoint")
    api_key = resolved.get("icefloe.lineage.transport.auth.apikey")
    return openlineage.HttpSender(
        openlineage.HttpOptions(
            target,
            endpoint or environ.get("OPENLINEAGE_ENDPOINT") or "api/v1/lineage",
            api_key or environ.get("OPENLINEAGE_API_KEY"),
            timeout_s,
            is_compressed=values["icefloe.lineage.transport.compression"] == "gzip",
        )
    )
