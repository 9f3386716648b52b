"""Sends the node's metrics, and the spans of its children, to an OpenTelemetry collector.

Rules of this file:
- OpenTelemetry is imported only if ``icefloe.otel.enabled`` is true.
- No thread of the node waits for the collector: metrics have a thread of their own, and spans are
  queued (``connect.gateways.otlp``).
- At its end the node waits a short time for what is not sent yet.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from connect.clock import Clock
from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError
from connect.gateways.catalog.catalog_libraries import is_installed
from connect.logs import logger
from connect.metrics.process_metrics import Exposition
from connect.model.round_span import RoundSpan

CLOSE_TIMEOUT_S: Final = 3.0
_LIBRARY: Final = "opentelemetry.exporter.otlp.proto.http"
_NS_PER_MS: Final = 1_000_000

_log = logger("otel")


class OtelReporter:
    """Sends every metric and span of a node.

    Args:
        metrics: sends metrics (``connect.gateways.otlp.MetricExport``).
        spans: sends spans (``connect.gateways.otlp.SpanExport``).
        interval_ms: between two exports of metrics.
    """

    def __init__(
        self, metrics: Any, spans: Any, exposition: Exposition, clock: Clock, *, interval_ms: int
    ) -> None:
        self._metrics = metrics
        self._spans = spans
        self._exposition = exposition
        self._clock = clock
        self._interval_ms = interval_ms
        self._stopping = threading.Event()
        self._sending = threading.Lock()  # the last export may come while another is under way

    @classmethod
    def of(
        cls,
        config: NodeConfig,
        environ: Mapping[str, str],
        exposition: Exposition,
        clock: Clock,
        *,
        resource: Mapping[str, str],
    ) -> OtelReporter | None:
        """Return the reporter of a node; None unless ``icefloe.otel.enabled`` is true.

        Args:
            config: the node's configuration.
            environ: the process's environment, from which the SDK takes its settings.
            exposition: the values.
            clock: time.
            resource: attributes of this node.

        Raises:
            ConfigError: ``library_missing``; ``otel``, a variable of OpenTelemetry is wrong.
        """
        if not config.values["icefloe.otel.enabled"]:
            return None
        if not is_installed(_LIBRARY):
            raise ConfigError(
                f"icefloe.otel.enabled needs the library {_LIBRARY}, which is not installed on "
                "this node: pip install 'icefloe[otel]'",
                code="library_missing",
            )
        otlp = importlib.import_module("connect.gateways.otlp")
        otlp.check_environment(environ)
        source = otlp.resource(resource)
        try:
            metrics = otlp.MetricExport(source, clock.now_ms() * _NS_PER_MS)
            spans = otlp.SpanExport(source)
        except ValueError as e:
            raise ConfigError(
                f"OpenTelemetry's exporters cannot use the environment (OTEL_...): {e}", code="otel"
            ) from e
        return cls(metrics, spans, exposition, clock, interval_ms=otlp.interval_ms(environ))

    def start(self) -> None:
        """Send metrics on a separate thread until ``stop``."""
        threading.Thread(target=self._run, name="otel", daemon=True).start()

    def stop(self) -> None:
        """Stop sending metrics at intervals; spans are sent until ``close``."""
        self._stopping.set()

    def received(self, spans: Iterable[Mapping[str, Any]]) -> None:
        """Queue the spans that a child sent."""
        for span in spans:
            self._spans.add(RoundSpan.from_json(span))

    def close(self) -> None:
        """Send the last values and spans, if the collector answers within a few seconds."""
        closing = threading.Thread(target=self._close, name="otel-close", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)

    def _close(self) -> None:
        self._spans.close()
        self._send()
        self._metrics.close()

    def _send(self) -> None:
        with self._sending:
            now_ns = self._clock.now_ms() * _NS_PER_MS
            is_sent = self._metrics.send(self._exposition.families(), now_ns)
        if not is_sent:
            _log.warning("metrics not sent to the OpenTelemetry collector")

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_ms / 1000):
            self._send()
