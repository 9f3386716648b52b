"""Sends metrics and spans to an OpenTelemetry collector: OTLP over HTTP, as Protobuf.

Rules of this file:
- The libraries take a third of a second to import, so only a node that exports imports this file.
- The exporters and the sampler read OpenTelemetry's own environment variables.
- The address is the operator's own, so the limits on what connectors may reach do not apply.
- A span that was given to ``add`` waits in a bounded queue, which drops spans when it is full. A
  thread of the SDK sends them. So a collector that is away never holds up who adds spans.
- Metrics keep their Prometheus names, and have no unit: some stores append a unit to a name.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from prometheus_client.core import Metric as Family

from connect.errors import ConfigError
from connect.model.round_span import RoundSpan
from connect.redaction.secret_values import KNOWN

SCOPE: Final = "icefloe"
PROTOCOL: Final = "http/protobuf"
DEFAULT_INTERVAL_MS: Final = 60_000
_SIGNALS: Final = ("", "TRACES_", "METRICS_")
_NS_PER_MS: Final = 1_000_000
UNSET: Final = 0
_ABSENT: Any = None  # optional fields of the wire format that the SDK's classes declare as numbers

Labels = tuple[tuple[str, str], ...]


def check_environment(environ: Mapping[str, str]) -> None:
    """Check OpenTelemetry's variables, and mask the values of headers in logs from now on.

    Raises:
        ConfigError: ``otel``, a protocol other than ``http/protobuf``, or a wrong interval.
    """
    for signal in _SIGNALS:
        name = f"OTEL_EXPORTER_OTLP_{signal}PROTOCOL"
        if (protocol := environ.get(name, PROTOCOL)) != PROTOCOL:
            raise ConfigError(
                f"{name} is {protocol!r}, but Icefloe sends {PROTOCOL} only: set it to {PROTOCOL}, "
                "and the endpoint to the collector's port for HTTP (4318)",
                code="otel",
            )
        for header in environ.get(f"OTEL_EXPORTER_OTLP_{signal}HEADERS", "").split(","):
            value = header.partition("=")[2].strip()
            for spelling in filter(None, (value, unquote(value))):
                KNOWN.add(spelling)
    interval_ms(environ)


def interval_ms(environ: Mapping[str, str]) -> int:
    """Return the time between two exports of metrics.

    Raises:
        ConfigError: ``otel``, the variable is no whole number above 0.
    """
    text = environ.get("OTEL_METRIC_EXPORT_INTERVAL", str(DEFAULT_INTERVAL_MS)).strip()
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(
            f"OTEL_METRIC_EXPORT_INTERVAL is {text!r}; it must be milliseconds, above 0",
            code="otel",
        )
    return int(text)


def resource(attributes: Mapping[str, str]) -> Resource:
    """Return the resource of a node; OpenTelemetry's variables win over ``attributes``."""
    return Resource.create(dict(attributes)).merge(OTELResourceDetector().detect())


class MetricExport:
    """Sends absolute values of metrics.

    Args:
        source: the resource of every metric.
        started_ns: when the process started, nanoseconds since 1970 UTC.
    """

    def __init__(self, source: Resource, started_ns: int) -> None:
        self._source = source
        self._exporter = OTLPMetricExporter()
        self._started_ns = started_ns
        self._sums: dict[tuple[str, Labels], tuple[int, float]] = {}

    def send(self, families: Iterable[Family], now_ns: int) -> bool:
        """Send the present values; return whether the collector took them.

        Args:
            families: as Prometheus sees them.
            now_ns: nanoseconds since 1970 UTC.
        """
        before, self._sums = self._sums, {}
        metrics = [m for f in families for m in self._metrics(f, now_ns, before)]
        scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
        data = MetricsData([ResourceMetrics(self._source, [scope], "")])
        return self._exporter.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Close connections; a request that is under way ends."""
        self._exporter.shutdown()

    def _metrics(
        self, family: Family, now_ns: int, before: Mapping[tuple[str, Labels], tuple[int, float]]
    ) -> Iterator[Metric]:
        def start_ns(name: str, labels: Labels, total: float) -> int:
            """Return since when a sum counts: a lower value than before is a new start."""
            since_ns, last = before.get((name, labels), (self._started_ns, 0.0))
            counts_from_ns = since_ns if total >= last else now_ns
            self._sums[name, labels] = (counts_from_ns, total)
            return counts_from_ns

        if family.type == "histogram":
            points = [
                _histogram_point(labels, samples, start_ns, family.name, now_ns)
                for labels, samples in _by_labels(family)
            ]
            data = Histogram(points, AggregationTemporality.CUMULATIVE)
            yield Metric(family.name, family.documentation, "", data)
            return
        numbers: dict[str, list[NumberDataPoint]] = {}
        is_sum = family.type == "counter"
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            since_ns = start_ns(sample.name, labels, sample.value) if is_sum else UNSET
            point = NumberDataPoint(dict(labels), since_ns, now_ns, float(sample.value))
            numbers.setdefault(sample.name, []).append(point)
        for name, listed in numbers.items():
            sums = Sum(listed, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            yield Metric(name, family.documentation, "", sums if is_sum else Gauge(listed))


class SpanExport:
    """Sends spans of rounds.

    Args:
        source: the resource of every span.
    """

    def __init__(self, source: Resource) -> None:
        self._lock = threading.Lock()
        self._ids = _SpanIds()
        provider = TracerProvider(resource=source, id_generator=self._ids, shutdown_on_exit=False)
        provider.sampler = _EvenSampler(provider.sampler)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._provider = provider
        self._tracer = provider.get_tracer(SCOPE)

    def add(self, span: RoundSpan) -> None:
        """Queue a span that has ended; returns at once."""
        trace_id = span.commit_id.int
        result = self._provider.sampler.should_sample(None, trace_id, span.name)
        parent = Context()
        if span.parent_id is not None:
            is_sampled = result.decision is Decision.RECORD_AND_SAMPLE
            flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
            remote = SpanContext(trace_id, span.parent_id, is_remote=True, trace_flags=flags)
            parent = set_span_in_context(NonRecordingSpan(remote), parent)
        with self._lock:
            self._ids.trace_id, self._ids.span_id = trace_id, span.span_id
            exported = self._tracer.start_span(
                span.name, parent, start_time=span.start_ms * _NS_PER_MS
            )
            attributes: dict[str, Any] = dict(span.attributes)
            if span.error_code is not None:
                exported.set_status(Status(StatusCode.ERROR, span.error_code))
                attributes["error.type"] = span.error_code
            exported.set_attributes(attributes)
            exported.end(max(span.start_ms, span.end_ms) * _NS_PER_MS)

    def close(self) -> None:
        """Send what waits; may take as long as a request to a collector that does not answer."""
        self._provider.shutdown()


class _SpanIds(IdGenerator):
    """Gives the ids that the span has already, as processes without the SDK made them."""

    def __init__(self) -> None:
        self.trace_id = 1
        self.span_id = 1

    def generate_trace_id(self) -> int:
        """Return the trace id of the span that is being made."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Return its span id."""
        return self.span_id


class _EvenSampler(Sampler):
    """Decides by the upper half of a trace id: the lower half of a UUID begins with fixed bits.

    Samplers by ratio compare the lower half with a bound. Of a UUID it is always in the third
    quarter of its range.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def should_sample(
        self, parent_context: Context | None, trace_id: int, *args: Any, **kwargs: Any
    ) -> SamplingResult:
        """Decide as the wrapped sampler does."""
        halves_swapped = (trace_id & (1 << 64) - 1) << 64 | trace_id >> 64
        return self._sampler.should_sample(parent_context, halves_swapped, *args, **kwargs)

    def get_description(self) -> str:
        """Return the description of the wrapped sampler."""
        return self._sampler.get_description()


def _by_labels(family: Family) -> Iterator[tuple[Labels, list[Any]]]:
    """Yield the samples of each label set of a histogram, buckets in order."""
    samples: dict[Labels, list[Any]] = {}
    for sample in family.samples:
        labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
        samples.setdefault(labels, []).append(sample)
    yield from samples.items()


def _histogram_point(
    labels: Labels, samples: list[Any], start_ns: Any, name: str, now_ns: int
) -> HistogramDataPoint:
    cumulative = [
        (float(s.labels["le"]), int(s.value)) for s in samples if s.name.endswith("_bucket")
    ]
    counts = [count for _, count in cumulative]
    total = next(s.value for s in samples if s.name.endswith("_sum"))
    single = [count - earlier for count, earlier in zip(counts, [0, *counts], strict=False)]
    return HistogramDataPoint(
        attributes=dict(labels),
        start_time_unix_nano=start_ns(name, labels, counts[-1]),
        time_unix_nano=now_ns,
        count=counts[-1],
        sum=total,
        bucket_counts=single,
        explicit_bounds=[bound for bound, _ in cumulative[:-1]],
        min=_ABSENT,
        max=_ABSENT,
    )
