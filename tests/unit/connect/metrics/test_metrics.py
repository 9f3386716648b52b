import json
import socket
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connect.errors import ConfigError, InvariantViolation
from connect.generated_docs import metrics_page
from connect.metrics import process_metrics
from connect.metrics.metric import DURATION_BUCKETS_S, Kind
from connect.metrics.metric_catalogue import CATALOGUE
from connect.metrics.process_metrics import Exposition, Registry
from connect.node.metrics.connect_metrics import CATALOGUE as CONNECT_CATALOGUE
from connect.node.metrics.connect_metrics import UNEXPOSED, ConnectMetrics
from connect.node.metrics.statsd_reporter import StatsdReporter
from connect.node.node_requests import ReportedStatus, TaskStatus
from connect.processes.ipc import Channel

ROOT = Path(__file__).parents[4]


def test_the_page_is_up_to_date() -> None:
    """``docs/reference/metrics.md`` has the metrics of the catalogue."""
    assert (ROOT / "docs/reference/metrics.md").read_text() == metrics_page.documentation()


def test_names_are_declared_once() -> None:
    """Two declarations of a name would hide each other."""
    names = [metric.name for metric in CATALOGUE]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("kind", "name", "labels"),
    [
        ("counter", "no_such_metric", {}),
        ("gauge", "rounds", {"connector": "c"}),
        ("counter", "rounds", {}),
        ("counter", "rounds", {"connector": "c", "task": 0}),
    ],
)
def test_undeclared_use_is_a_bug(kind: Kind, name: str, labels: dict[str, object]) -> None:
    """Name, kind and labels must be those of the catalogue."""
    with pytest.raises(InvariantViolation):
        Registry().value(kind, name, labels)


def test_samples_of_children_reach_prometheus() -> None:
    """Changed values are sent over the pipe and printed in the text format."""
    ours, theirs = socket.socketpair()
    node, child = Channel(ours), Channel(theirs)
    registry = Registry()
    registry.value("counter", "rounds", {"connector": 'c"1'}).inc()
    thread = process_metrics.start_reporting(child, registry)
    exposition = Exposition(lambda: 5_000, registry=Registry())
    received = node.receive()
    first = next(received)
    registry.value("counter", "rounds", {"connector": 'c"1'}).inc(2)
    registry.value("gauge", "valid_through_timestamp_seconds", {"connector": "c"}).set(2)
    expected = {
        'icefloe_rounds_total{connector="c\\"1"} 3.0',
        'icefloe_valid_through_age_seconds{connector="c"} 3.0',
    }
    exposition.received("coordinator", first["samples"])
    while not expected <= {*exposition.text().splitlines()}:  # the test's timeout bounds it
        exposition.received("coordinator", next(received)["samples"])
    node.close()
    registry.value("counter", "rounds", {"connector": "c"}).inc()
    thread.join(60)
    assert not thread.is_alive()
    child.close()


def test_a_histogram_counts_each_duration_in_its_bucket() -> None:
    """Buckets are cumulative and summed over children; a bound belongs to its bucket."""
    ours, child = Registry(), Registry()
    for registry, durations in ((ours, (0.0, 0.005, 0.006)), (child, (2.5, 1_000.0))):
        for seconds in durations:
            registry.durations("round_duration_seconds", {"connector": "c"}).observe(seconds)
    exposition = Exposition(lambda: 0, registry=ours)
    samples = json.loads(json.dumps(child.snapshot()[1]))
    exposition.received("coordinator", samples)
    text = exposition.text()
    family = next(
        f
        for f in text_string_to_metric_families(text)
        if f.name == "icefloe_round_duration_seconds"
    )
    assert family.type == "histogram"
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert (buckets["0.005"], buckets["0.01"], buckets["1"], buckets["2.5"]) == (2, 3, 3, 4)
    assert (buckets["600"], buckets["+Inf"]) == (4, 5)
    assert len(buckets) == len(DURATION_BUCKETS_S) + 1
    values = {s.name: s.value for s in family.samples if not s.name.endswith("_bucket")}
    assert values["icefloe_round_duration_seconds_count"] == 5
    assert values["icefloe_round_duration_seconds_sum"] == pytest.approx(1_002.511)
    ours.forget(connector="c")
    assert ours.snapshot()[1] == []


def test_series_of_a_histogram_are_bounded() -> None:
    """Above the limit, durations count under one name; buckets are no series."""
    registry = Registry()
    for number in range(2 * process_metrics.SERIES_MAX + 3):
        for seconds in (0.1, 5):
            labels = {"connector": str(number)}
            registry.durations("round_duration_seconds", labels).observe(seconds)
    counted = {(labels["connector"], labels["le"]): n for _, labels, n in registry.snapshot()[1]}
    assert counted["0", "0.1"] == counted["1", "5"] == 1
    assert counted["other", "0.1"] == counted["other", "5"] == 3


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, values count under one name, and none is lost."""
    monkeypatch.setattr(process_metrics, "SERIES_MAX", 3)
    registry = Registry()
    for number in range(10):
        registry.value("counter", "rounds", {"connector": str(number)}).inc()
    samples = registry.snapshot()[1]
    assert len(samples) == 7
    assert sum(number for _, _, number in samples) == 10
    assert ("rounds", {"connector": "other"}, 4.0) in samples


def test_tables_of_one_connector_hide_no_values_of_another() -> None:
    """Records name tables, so the producers of one tenant choose how many series there are."""
    registry, count = Registry(), process_metrics.SERIES_MAX + 3
    for number in range(count):
        registry.value("counter", "files_skipped", {"connector": "a", "table": f"t{number}"}).inc()
    for table in ("x", "y"):
        registry.value("counter", "files_skipped", {"connector": "b", "table": table}).inc()
    exposition = Exposition(lambda: 0, is_known={"a", "b"}.__contains__, registry=registry)
    assert exposition.total("files_skipped", connector="a") == count
    assert exposition.total("files_skipped", connector="b") == 2
    assert ("files_skipped", {"connector": "b", "table": "other"}, 2.0) in exposition.samples()


def test_values_of_deleted_connectors_disappear() -> None:
    """From the node and from its children."""
    known = {"a"}
    registry = Registry()
    for name in ("a", "b"):
        registry.value("counter", "rounds", {"connector": name}).inc()
    exposition = Exposition(lambda: 0, known.__contains__, registry)
    assert [labels for _, labels, _ in exposition.samples()] == [{"connector": "a"}]
    registry.forget(connector="a")
    assert exposition.samples() == []


def test_gauges_are_of_local_tasks() -> None:
    """A child reports units that ran on it before: their gauges would never change."""
    exposition = Exposition(
        lambda: 0,
        registry=Registry(),
        is_local=lambda connector, task: (connector, task) == ("c", "1"),
    )
    reported = [
        [name, {"connector": "c", **labels}, 1]
        for name, labels in (
            ("lag_records", {"task": "0"}),
            ("lag_records", {"task": "1"}),
            ("records_read", {"task": "0"}),
            ("valid_through_timestamp_seconds", {}),
            ("rounds", {}),
        )
    ]
    exposition.received("worker", reported)
    assert exposition.samples() == [
        ("lag_records", {"connector": "c", "task": "1"}, 1.0),
        ("records_read", {"connector": "c", "task": "0"}, 1.0),
        ("rounds", {"connector": "c"}, 1.0),
    ]


def test_undeclared_samples_of_a_child_are_left_out() -> None:
    """A sample that is not declared is left out, the others count."""
    exposition = Exposition(lambda: 0, registry=Registry())
    exposition.received("worker", [["nonsense", {}, 1], ["rounds", {"connector": "c"}, 1]])
    assert exposition.samples() == [("rounds", {"connector": "c"}, 1.0)]


def test_counting_is_thread_safe() -> None:
    """No increment is lost between threads."""
    registry = Registry()
    value = registry.value("counter", "rounds", {"connector": "c"})

    def count() -> None:
        for _ in range(2_000):
            value.inc()

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.snapshot()[1] == [("rounds", {"connector": "c"}, 8_000)]


def test_kafka_connects_metrics_have_its_names() -> None:
    """Counts of tasks and states of connectors, as dashboards for Kafka Connect expect."""
    registry = Registry()
    registry.value("counter", "records_read", {"connector": "c", "task": 0}).inc(7)
    exposition = Exposition(lambda: 0, registry=registry)
    tasks = (TaskStatus(0, "RUNNING", "w:1"), TaskStatus(1, "FAILED", "w:1", "why"))
    statuses = [ReportedStatus("c", "RUNNING", "w:1", tasks)]
    exposition.also(ConnectMetrics(exposition.samples, lambda: statuses))
    text = exposition.text()
    for line in (
        'kafka_connect_sink_task_sink_record_read_total{connector="c",task="0"} 7.0',
        'kafka_connect_connector_status{connector="c",status="running",task=""} 1.0',
        'kafka_connect_connector_status{connector="c",status="failed",task="1"} 1.0',
        'kafka_connect_worker_connector_failed_task_count{connector="c"} 1.0',
        "kafka_connect_worker_connector_count 1.0",
        "kafka_connect_worker_task_count 2.0",
    ):
        assert line in text.splitlines()
    statuses.clear()
    assert "kafka_connect_connector_status{" not in exposition.text()


def test_every_source_of_kafka_connects_metrics_is_declared() -> None:
    """With the same labels, in the same order."""
    own = {m.name: m for m in CATALOGUE}
    for metric in CONNECT_CATALOGUE:
        if metric.source is not None:
            assert own[metric.source].labels == metric.labels


KAFKA_CONNECT = {
    "connector-metrics": "connector-class connector-type connector-version status",
    "connector-task-metrics": (
        "status running-ratio pause-ratio offset-commit-max-time-ms offset-commit-avg-time-ms "
        "batch-size-max batch-size-avg offset-commit-failure-percentage "
        "offset-commit-success-percentage connector-class connector-type connector-version "
        "task-class task-version header-converter-class header-converter-version "
        "key-converter-class key-converter-version value-converter-class value-converter-version"
    ),
    "connector-transform-metrics": "transform-class transform-version",
    "connector-predicate-metrics": "predicate-class predicate-version",
    "sink-task-metrics": (
        "sink-record-read-rate sink-record-read-total sink-record-send-rate "
        "sink-record-send-total sink-record-lag-max partition-count offset-commit-seq-no "
        "offset-commit-completion-rate offset-commit-completion-total offset-commit-skip-rate "
        "offset-commit-skip-total put-batch-max-time-ms put-batch-avg-time-ms "
        "sink-record-active-count sink-record-active-count-max sink-record-active-count-avg"
    ),
    "task-error-metrics": (
        "total-record-failures total-record-errors total-records-skipped total-retries "
        "total-errors-logged deadletterqueue-produce-requests deadletterqueue-produce-failures "
        "last-error-timestamp"
    ),
    "connect-worker-metrics": (
        "connector-count task-count connector-startup-attempts-total "
        "connector-startup-failure-percentage connector-startup-failure-total "
        "connector-startup-success-percentage connector-startup-success-total "
        "task-startup-attempts-total task-startup-failure-percentage task-startup-failure-total "
        "task-startup-success-percentage task-startup-success-total connector-destroyed-task-count "
        "connector-failed-task-count connector-paused-task-count connector-restarting-task-count "
        "connector-running-task-count connector-total-task-count connector-unassigned-task-count"
    ),
    "connect-worker-rebalance-metrics": (
        "leader-name epoch connect-protocol completed-rebalances-total rebalancing "
        "rebalance-max-time-ms rebalance-avg-time-ms time-since-last-rebalance-ms"
    ),
}
"""Kafka Connect 4.3's attributes for sinks, by group."""


def test_each_metric_of_kafka_connect_is_given_or_explained() -> None:
    """Not both, and no other metric is explained."""
    given = {metric.name for metric in CONNECT_CATALOGUE}
    absent = {(left_out.group, name) for left_out in UNEXPOSED for name in left_out.names}
    for group, names in KAFKA_CONNECT.items():
        prefix = f"kafka_connect_{group.removeprefix('connect-').removesuffix('-metrics')}_"
        for name in names.split():
            exposed = (prefix + name).replace("-", "_")
            assert (exposed in given) != ((group, name) in absent), (group, name)
    known = {(group, name) for group, names in KAFKA_CONNECT.items() for name in names.split()}
    assert absent <= known


def test_statsd_gets_differences_of_counters_and_changed_gauges() -> None:
    """Also after a restart from zero."""
    registry = Registry()
    exposition = Exposition(lambda: 0, registry=registry)
    read = registry.value("counter", "records_read", {"connector": "a.b:c", "task": 0})
    lag = registry.value("gauge", "lag_records", {"connector": "c", "task": 0})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        reporter = StatsdReporter(address, "ice", exposition.samples)

        def report() -> set[str]:
            reporter.report()
            return set(server.recv(65_536).decode().split("\n"))

        read.set(5)
        lag.set(3)
        registry.durations("round_duration_seconds", {"connector": "c"}).observe(1)
        assert report() == {"ice.records_read.a_b_c.0:5|c", "ice.lag_records.c.0:3|g"}
        read.set(7)
        assert report() == {"ice.records_read.a_b_c.0:2|c"}
        read.set(4)
        lag.set(1)
        assert report() == {"ice.records_read.a_b_c.0:4|c", "ice.lag_records.c.0:1|g"}


@pytest.mark.parametrize("address", ["host", "host:", ":8125", "host:none", "host:99999"])
def test_a_wrong_statsd_address_is_refused(address: str) -> None:
    """The error shows the form of an address."""
    with pytest.raises(ConfigError, match="<host>:<port>"):
        StatsdReporter(address, "ice", list)
