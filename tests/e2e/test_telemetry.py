"""Metrics and traces of a real node, as an OpenTelemetry collector receives them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.otlp_collector import OtlpCollector, attributes_of
from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def whole_round(collector: OtlpCollector, connector: str) -> list[Any] | None:
    """The spans of a round that read and committed records; None until all have arrived."""
    for answer in collector.spans(icefloe__connector=connector):
        if answer.name == "answer" and attributes_of(answer)["icefloe.records"]:
            of_round = [s for s in collector.spans() if s.trace_id == answer.trace_id]
            names = {span.name for span in of_round}
            if {"round", "announce", "write", "read"} <= names:
                return of_round
    return None


def test_a_round_is_one_trace_and_a_silent_collector_delays_none(running: RunningStack) -> None:
    """Spans of coordinator and worker join; metrics have their usual names; no secret leaves."""
    assert running.collector is not None
    collector: OtlpCollector = running.collector
    name, topic = unique_name("traced"), running.topic("traced")
    table = f"telemetry.{unique_name('t').replace('-', '_')}"
    running.table(table)
    running.produce(topic, *numbered(0, 10))
    running.create(name, running.connector(topics=topic, iceberg__tables=table))
    running.rows(table, 10, name)
    running.produce(topic, *numbered(10, 10))  # a task reads the first ones before a round
    running.rows(table, 20, name)
    spans = running.wait_until(lambda: whole_round(collector, name), lambda: "the trace of a round")

    by_id = {span.span_id: span for span in spans}
    by_name = {span.name: span for span in spans}
    assert set(by_name) >= {
        *("round", "start commit", "wait for tasks", "commit table", "complete"),
        *("answer", "read", "write", "announce"),
    }
    root = by_name["round"]
    assert root.parent_span_id == b""
    assert all(span.parent_span_id in by_id for span in spans if span is not root)
    assert by_name["announce"].parent_span_id == by_name["answer"].span_id
    assert by_name["answer"].parent_span_id == root.span_id
    assert root.trace_id.hex() == attributes_of(root)["icefloe.commit_id"].replace("-", "")
    assert attributes_of(root)["icefloe.records"] == 10
    assert attributes_of(by_name["commit table"])["icefloe.table"] == table
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)

    def has_metrics() -> bool:
        for metrics in collector.metrics():
            metric = metrics.get("icefloe_records_committed_total")
            points = metric.sum.data_points if metric is not None else ()
            wanted = {"connector": name, "table": table}
            if any(attributes_of(p) == wanted and p.as_double == 20 for p in points):
                return True
        return False

    running.wait_until(has_metrics, lambda: "the metrics of the connector")
    resource = collector.resources()[-1]
    assert (resource["service.name"], resource["service.namespace"]) == ("icefloe", "icefloe")
    assert resource["service.instance.id"] in running.stack.rest_url
    assert not any(b"canary-" in body for body in collector.bodies)
    assert {headers.get("x-token") for headers in collector.headers} == {"canary-otel-7f3c9e"}

    collector.may_answer.clear()
    try:
        running.produce(topic, *numbered(20, 10))
        running.rows(table, 30, name)
        least = running.counts(name)["rounds"] + 3
        running.wait_until(lambda: running.counts(name)["rounds"] >= least, lambda: "more rounds")
    finally:
        collector.may_answer.set()
    assert not any("canary-otel" in text for text in running.logs().values())
    running.delete(name)
