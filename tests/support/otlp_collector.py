"""A real HTTP server that decodes what OpenTelemetry's exporters send to a collector."""

from __future__ import annotations

import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

REQUESTS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}


class OtlpCollector:
    """Listens on a free loopback port until ``close``.

    Attributes:
        received: decoded requests, by path.
        headers: of every request.
        bodies: of every request, as bytes.
        may_answer: cleared, the server reads requests and does not answer.
    """

    def __init__(self) -> None:
        self.received: dict[str, list[Any]] = defaultdict(list)
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """Takes POST."""

            def do_POST(self) -> None:
                """Keep the request."""
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.may_answer.wait()
                outer.headers.append(dict(self.headers))
                outer.bodies.append(body)
                outer.received[self.path].append(REQUESTS[self.path].FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()

    def metrics(self) -> list[dict[str, Metric]]:
        """Metrics of each request, by name."""
        return [
            {m.name: m for r in one.resource_metrics for s in r.scope_metrics for m in s.metrics}
            for one in list(self.received["/v1/metrics"])
        ]

    def spans(self, **attributes: Any) -> list[Span]:
        """All spans that have these attributes; ``__`` for a dot."""
        wanted = {name.replace("__", "."): value for name, value in attributes.items()}
        found = (
            span
            for one in list(self.received["/v1/traces"])
            for r in one.resource_spans
            for s in r.scope_spans
            for span in s.spans
        )
        return [span for span in found if wanted.items() <= attributes_of(span).items()]

    def resources(self) -> list[dict[str, Any]]:
        """Attributes of the resource of each request."""
        metrics = [r for one in self.received["/v1/metrics"] for r in one.resource_metrics]
        spans = [r for one in self.received["/v1/traces"] for r in one.resource_spans]
        return [attributes_of(each.resource) for each in (*metrics, *spans)]


def attributes_of(item: Any) -> dict[str, Any]:
    """Attributes of a span, resource or data point, as Python values."""
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in item.attributes}
