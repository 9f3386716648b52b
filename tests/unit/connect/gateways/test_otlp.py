"""Metrics and spans as a collector receives them from the real exporters."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from connect.errors import ConfigError
from connect.gateways.otlp import (
    MetricExport,
    SpanExport,
    check_environment,
    interval_ms,
    resource,
)
from connect.metrics.process_metrics import Exposition, Registry
from connect.model.round_span import RoundSpan, round_span_id
from connect.redaction.secret_values import KNOWN
from tests.support.otlp_collector import OtlpCollector, attributes_of

COMMIT_ID = UUID("0b54a2b7-9d0c-4c9a-8f2e-51a6d1a0c3e4")


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpCollector]:
    """A collector to which the exporters of a test send."""
    collector = OtlpCollector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    yield collector
    collector.close()


def span(number: int, parent: int | None = None, commit_id: UUID = COMMIT_ID) -> RoundSpan:
    """A span of a round."""
    return RoundSpan("step", commit_id, number, parent, 1_000, 2_000, {"icefloe.connector": "c"})


def test_metrics_keep_names_labels_and_buckets(collector: OtlpCollector) -> None:
    """Counters are sums that only rise, gauges are gauges, and buckets hold their own counts."""
    registry = Registry()
    exposition = Exposition(lambda: 0, registry=registry)
    registry.value("counter", "rounds", {"connector": "c"}).inc(3)
    registry.value("gauge", "lag_records", {"connector": "c", "task": 1}).set(7)
    for seconds in (0.004, 0.02, 0.02, 9_000):
        registry.durations("round_duration_seconds", {"connector": "c"}).observe(seconds)
    export = MetricExport(resource({"service.name": "icefloe"}), 5)
    assert export.send(exposition.families(), 100)
    export.close()
    (metrics,) = collector.metrics()
    (point,) = metrics["icefloe_rounds_total"].sum.data_points
    assert metrics["icefloe_rounds_total"].sum.is_monotonic
    assert (
        metrics["icefloe_rounds_total"].sum.aggregation_temporality
        == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    assert (point.as_double, attributes_of(point)) == (3, {"connector": "c"})
    assert (point.start_time_unix_nano, point.time_unix_nano) == (5, 100)
    (point,) = metrics["icefloe_lag_records"].gauge.data_points
    assert (point.as_double, attributes_of(point)) == (7, {"connector": "c", "task": "1"})
    (point,) = metrics["icefloe_round_duration_seconds"].histogram.data_points
    assert (point.count, round(point.sum, 3)) == (4, 9000.044)
    assert (point.explicit_bounds[0], point.explicit_bounds[-1]) == (0.005, 600)
    assert [count for count in point.bucket_counts if count] == [1, 2, 1]
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert not any(metric.unit for metric in metrics.values())


def test_a_sum_that_falls_has_a_new_start(collector: OtlpCollector) -> None:
    """A restarted child counts from zero: readers must not take that for a negative rate."""
    export = MetricExport(resource({}), 5)
    for total, now_ns in ((10, 100), (12, 200), (1, 300), (4, 400)):
        registry = Registry()
        registry.value("counter", "rounds", {"connector": "c"}).inc(total)
        assert export.send(Exposition(lambda: 0, registry=registry).families(), now_ns)
    export.close()
    points = [m["icefloe_rounds_total"].sum.data_points[0] for m in collector.metrics()]
    assert [p.start_time_unix_nano for p in points] == [5, 5, 300, 300]


def test_spans_of_a_round_have_the_ids_that_they_were_made_with(collector: OtlpCollector) -> None:
    """The trace id is the commit id; the parent is named although another process made it."""
    export = SpanExport(resource({"service.name": "icefloe", "service.instance.id": "n:1"}))
    root = round_span_id(COMMIT_ID)
    failed = RoundSpan("step", COMMIT_ID, 18, root, 1_000, 2_000, {}, "catalog_unavailable")
    for each in (span(root), span(17, root), failed):
        export.add(each)
    export.close()
    by_id = {int.from_bytes(s.span_id): s for s in collector.spans()}
    assert set(by_id) == {root, 17, 18}
    assert {s.trace_id for s in by_id.values()} == {COMMIT_ID.bytes}
    assert by_id[root].parent_span_id == b""
    assert int.from_bytes(by_id[17].parent_span_id) == root
    assert (by_id[17].start_time_unix_nano, by_id[17].end_time_unix_nano) == (10**9, 2 * 10**9)
    assert by_id[18].status.message == "catalog_unavailable"
    assert attributes_of(by_id[18]) == {"error.type": "catalog_unavailable"}
    assert collector.resources()[0]["service.instance.id"] == "n:1"


def test_a_ratio_samples_whole_traces(
    collector: OtlpCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About that part of the rounds, and all spans of each, as every process decides alike."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    rounds = [UUID(int=(n * 0x9E3779B97F4A7C15 % (1 << 64)) << 64, version=4) for n in range(400)]
    for _ in ("coordinator", "worker"):
        export = SpanExport(resource({}))
        for commit_id in rounds:
            export.add(span(round_span_id(commit_id), None, commit_id))
            export.add(span(17, round_span_id(commit_id), commit_id))
        export.close()
    found: dict[bytes, int] = {}
    for each in collector.spans():
        found[each.trace_id] = found.get(each.trace_id, 0) + 1
    assert 60 <= len(found) <= 140
    assert set(found.values()) == {4}


def test_a_collector_that_does_not_answer_delays_no_caller(collector: OtlpCollector) -> None:
    """More spans than the queue holds are added meanwhile; those that do not fit are dropped."""
    collector.may_answer.clear()
    export = SpanExport(resource({}))
    for number in range(1, 20_001):
        export.add(span(number))
    assert len(collector.headers) < 20  # a caller that waits would send all 40 requests
    collector.may_answer.set()
    export.close()
    assert 0 < len(collector.spans()) < 20_000


def test_the_environment_names_the_resource() -> None:
    """OpenTelemetry's variables win over the node's own attributes."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_SERVICE_NAME", "lake")
        environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        attributes = resource({"service.name": "icefloe", "service.version": "1"}).attributes
    assert (attributes["service.name"], attributes["service.version"]) == ("lake", "1")
    assert attributes["deployment.environment.name"] == "test"


def test_headers_are_secrets() -> None:
    """Their values are masked in every log line of the node."""
    check_environment({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20otel-secret-4"})
    assert "otel-secret" not in KNOWN.mask("answer: Bearer otel-secret-4, Bearer%20otel-secret-4")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1m", "milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "milliseconds"),
    ],
)
def test_settings_that_cannot_work_are_refused(name: str, value: str, text: str) -> None:
    """The error names the variable and what it must be."""
    with pytest.raises(ConfigError, match=text) as error:
        check_environment({name: value})
    assert error.value.code == "otel"
    assert name in error.value.message


def test_the_interval_is_opentelemetrys() -> None:
    """A minute by default."""
    assert interval_ms({}) == 60_000
    assert interval_ms({"OTEL_METRIC_EXPORT_INTERVAL": "500"}) == 500
