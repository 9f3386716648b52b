"""A collector that decodes what OpenTelemetry's exporters send to it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.http_receiver import HttpReceiver

REQUESTS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}


class OtlpCollector(HttpReceiver):
    """Accepts every request.

    Attributes:
        received: decoded requests, by path.
        bodies: of every request, as bytes.
    """

    def __init__(self) -> None:
        self.received: dict[str, list[Any]] = defaultdict(list)
        self.bodies: list[bytes] = []
        super().__init__()

    def _keep(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        self.received[path].append(REQUESTS[path].FromString(body))

    def metrics(self) -> list[dict[str, Metric]]:
        """Metrics of each request, by name."""
        return [
            {
                m.name: m
                for r in request.resource_metrics
                for s in r.scope_metrics
                for m in s.metrics
            }
            for request in list(self.received["/v1/metrics"])
        ]

    def spans(self, **attributes: Any) -> list[Span]:
        """All spans that have these attributes; ``__`` for a dot."""
        wanted = {name.replace("__", "."): value for name, value in attributes.items()}
        spans = (
            span
            for request in list(self.received["/v1/traces"])
            for r in request.resource_spans
            for s in r.scope_spans
            for span in s.spans
        )
        return [span for span in spans if wanted.items() <= attributes_of(span).items()]

    def resources(self) -> list[dict[str, Any]]:
        """Attributes of the resource of each request."""
        metrics = [m for request in self.received["/v1/metrics"] for m in request.resource_metrics]
        spans = [s for request in self.received["/v1/traces"] for s in request.resource_spans]
        return [attributes_of(part.resource) for part in (*metrics, *spans)]


def attributes_of(item: Any) -> dict[str, Any]:
    """Attributes of a span, resource or data point, as Python values."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in item.attributes}
