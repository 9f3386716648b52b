"""Metrics of every process: counted locally, sent to the node, and exposed by it.

Rules of this file:
- A metric that is not in ``CATALOGUE`` cannot be counted; its labels are exactly those declared.
  ``docs/reference/metrics.md`` is made from the catalogue (``metrics_docs``).
- Labels hold no secret that the process has resolved, but for names of connectors and tasks.
- A metric has at most ``SERIES_MAX`` label sets. More are counted under ``other``, so that a route
  to ten thousand tables does not flood the exposition. They keep their connector and task, with
  ``SERIES_MAX`` more label sets: the tables of one connector hide no value of another one.
- Children send absolute values; the node exposes the last received ones. A restarted child counts
  from zero, which Prometheus understands as a reset.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as PrometheusMetric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from connect.errors import InvariantViolation
from connect.metrics.metric import DURATION_BUCKETS_S, INFINITE, SUM, Kind, Metric
from connect.metrics.metric_catalogue import CATALOGUE
from connect.processes.ipc import Channel
from connect.redaction.secret_values import KNOWN

SERIES_MAX = 2_000
REPORT_INTERVAL_S = 1.0
SIGN_OF_LIFE_S = 5.0
OTHER: Final = "other"
_IDENTITIES: Final = frozenset({"connector", "task"})

_BUCKETS: Final = (*(f"{bound:g}" for bound in DURATION_BUCKETS_S), INFINITE)

Key: TypeAlias = tuple[str, tuple[str, ...]]
Sample: TypeAlias = tuple[str, dict[str, str], float]
Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in CATALOGUE}


class Value:
    """One metric with its labels."""

    __slots__ = ("_key", "_registry")

    def __init__(self, registry: Registry, key: tuple[str, tuple[str, ...]]) -> None:
        self._registry = registry
        self._key = key

    def inc(self, amount: float = 1) -> None:
        """Add to the value."""
        self._registry.add(self._key, amount)

    def set(self, value: float) -> None:
        """Set the value; for counters with a total that another component keeps."""
        self._registry.put(self._key, value)


class DurationHistogram:
    """One histogram of durations with its labels."""

    __slots__ = ("_key", "_registry")

    def __init__(self, registry: Registry, key: Key) -> None:
        self._registry = registry
        self._key = key

    def observe(self, seconds: float) -> None:
        """Count a duration."""
        name, labels = self._key
        bucket = _BUCKETS[bisect_left(DURATION_BUCKETS_S, seconds)]
        added = {(name, (*labels, bucket)): 1.0, (name, (*labels, SUM)): seconds}
        self._registry.add_all(added)


class Registry:
    """The values of one process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Key, float] = {}
        self._series: dict[str, set[tuple[str, ...]]] = {}
        self._version = 0

    def value(self, kind: Kind, name: str, labels: Mapping[str, object]) -> Value:
        """The counter or gauge with these labels.

        Raises:
            InvariantViolation: not declared so.
        """
        key = self._key(kind, name, labels)
        with self._lock:
            self._values.setdefault(key, 0)
        return Value(self, key)

    def durations(self, name: str, labels: Mapping[str, object]) -> DurationHistogram:
        """The histogram with these labels.

        Raises:
            InvariantViolation: not declared so.
        """
        return DurationHistogram(self, self._key("histogram", name, labels))

    def _key(self, kind: Kind, name: str, labels: Mapping[str, object]) -> Key:
        metric = _BY_NAME.get(name)
        if metric is None or metric.kind != kind or set(labels) != set(metric.labels):
            raise InvariantViolation(f"no {kind} {name} with labels {sorted(labels)} is declared")
        key = (name, tuple(_text(label, labels[label]) for label in metric.labels))
        with self._lock:
            series = self._series.setdefault(name, set())
            if key[1] not in series:
                if len(series) < SERIES_MAX:
                    series.add(key[1])
                else:
                    return name, self._other(metric, key[1])
        return key

    def _other(self, metric: Metric, values: tuple[str, ...]) -> tuple[str, ...]:
        """Return the labels of one more series than the limit; the lock is held."""
        kept = tuple(
            value if label in _IDENTITIES else OTHER
            for label, value in zip(metric.labels, values, strict=True)
        )
        series = self._series[metric.name]
        if kept not in series:
            if len(series) >= 2 * SERIES_MAX:
                return tuple(OTHER for _ in metric.labels)
            series.add(kept)
        return kept

    def add(self, key: Key, amount: float) -> None:
        """Add to a value."""
        self.add_all({key: amount})

    def add_all(self, amounts: Mapping[Key, float]) -> None:
        """Add to several values at once."""
        with self._lock:
            for key, amount in amounts.items():
                self._values[key] = self._values.get(key, 0) + amount
            self._version += 1

    def put(self, key: Key, value: float) -> None:
        """Set a value."""
        with self._lock:
            if self._values.get(key) != value:
                self._values[key] = value
                self._version += 1

    def forget(self, **labels: object) -> None:
        """Drop every value that has all these labels, e.g. of a connector that is gone."""
        forgotten = {label: _text(label, value) for label, value in labels.items()}
        with self._lock:
            for key in list(self._values):
                metric = _BY_NAME[key[0]]
                has = dict(zip(metric.sample_labels, key[1], strict=True))
                if forgotten.items() <= has.items():
                    del self._values[key]
                    self._series.get(key[0], set()).discard(key[1][: len(metric.labels)])
            self._version += 1

    @property
    def version(self) -> int:
        """A number that rises with every change."""
        with self._lock:
            return self._version

    def snapshot(self) -> tuple[int, list[Sample]]:
        """A version that rises with every change, and all values."""
        with self._lock:
            return self._version, [
                (name, dict(zip(_BY_NAME[name].sample_labels, values, strict=True)), number)
                for (name, values), number in self._values.items()
            ]


def _text(label: str, value: object) -> str:
    """A label's value without secrets; connectors and tasks are found by theirs."""
    text = str(value)
    return text if label in _IDENTITIES else KNOWN.mask(text)


PROCESS = Registry()
"""The registry of this process."""


def counter(name: str, **labels: object) -> Value:
    """A counter of this process."""
    return PROCESS.value("counter", name, labels)


def gauge(name: str, **labels: object) -> Value:
    """A gauge of this process."""
    return PROCESS.value("gauge", name, labels)


def durations(name: str, **labels: object) -> DurationHistogram:
    """A histogram of this process."""
    return PROCESS.durations(name, labels)


def catalog_requests(process: str) -> Callable[[str, str, int], None]:
    """Return a function that counts the duration of a catalog request.

    Args:
        process: ``worker`` or ``coordinator``.

    Returns:
        Takes the operation, its outcome, and its milliseconds.
    """

    def observe(operation: str, outcome: str, duration_ms: int) -> None:
        labels = {"process": process, "operation": operation, "outcome": outcome}
        durations("catalog_request_duration_seconds", **labels).observe(duration_ms / 1000)

    return observe


def start_reporting(channel: Channel, registry: Registry = PROCESS) -> threading.Thread:
    """Send the values over the pipe once a second when they have changed, until it ends.

    Without a change they are sent now and then all the same, as a sign of life.
    """

    def run() -> None:
        sent, quiet_s, pause = -1, 0.0, threading.Event()
        while True:
            if registry.version != sent or quiet_s >= SIGN_OF_LIFE_S:
                quiet_s = 0.0
                sent, samples = registry.snapshot()
                if not channel.send({"event": "metrics", "samples": samples}):
                    return
            pause.wait(REPORT_INTERVAL_S)
            quiet_s += REPORT_INTERVAL_S

    thread = threading.Thread(target=run, name="metrics", daemon=True)
    thread.start()
    return thread


class Exposition(Collector):
    """Exposes the node's own values and the last ones of its children. Thread-safe.

    Args:
        now_ms: wall clock, for ages.
        is_known: whether a connector still exists; values of others are left out.
        is_local: whether a task of a connector, or (None) its coordinator, runs on this node;
            gauges of others are left out, because a child keeps sending their last values.
        registry: the node's own values.
    """

    def __init__(
        self,
        now_ms: Callable[[], int],
        is_known: Callable[[str], bool] = lambda _: True,
        registry: Registry = PROCESS,
        is_local: Callable[[str, str | None], bool] = lambda *_: True,
    ) -> None:
        self._now_ms = now_ms
        self._is_known = is_known
        self._is_local = is_local
        self._own = registry
        self._lock = threading.Lock()
        self._received: dict[str, list[Sample]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def received(self, process: str, samples: Iterable[Any]) -> None:
        """Take the absolute values that a child sent; undeclared metrics are left out."""
        kept: list[Sample] = [
            (str(name), {str(k): str(v) for k, v in labels.items()}, float(number))
            for name, labels, number in samples
            if name in _BY_NAME and set(labels) == set(_BY_NAME[name].sample_labels)
        ]
        with self._lock:
            self._received[process] = kept

    def samples(self) -> list[Sample]:
        """Return all values known to the node."""
        with self._lock:
            received = [sample for samples in self._received.values() for sample in samples]
        is_known, is_local = cache(self._is_known), cache(self._is_local)

        def is_displayed(metric: str, connector: str, task: str | None) -> bool:
            is_gauge = _BY_NAME[metric].kind == "gauge"
            return is_known(connector) and (not is_gauge or is_local(connector, task))

        merged: dict[tuple[str, tuple[str, ...]], Sample] = {}
        for name, labels, number in [*self._own.snapshot()[1], *received]:
            if "connector" in labels and not is_displayed(
                name, labels["connector"], labels.get("task")
            ):
                continue
            key = (name, tuple(labels.values()))
            earlier = merged.get(key)
            is_sum = earlier is not None and _BY_NAME[name].kind != "gauge"
            merged[key] = (name, labels, number + (earlier[2] if earlier and is_sum else 0))
            if name == "valid_through_timestamp_seconds":
                age = max(0.0, self._now_ms() / 1000 - number)
                merged["valid_through_age_seconds", key[1]] = (
                    "valid_through_age_seconds",
                    labels,
                    age,
                )
        return list(merged.values())

    def total(self, name: str, **labels: str) -> float | None:
        """Sum over all values of a metric that have these labels; None when there is none."""
        values = [
            number
            for kind, has, number in self.samples()
            if kind == name and labels.items() <= has.items()
        ]
        return sum(values) if values else None

    def sums(self, names: Iterable[str]) -> dict[str, dict[str, float]]:
        """Sums of these metrics, by connector and metric; none where there is no value."""
        wanted_names = frozenset(names)
        sums: dict[str, dict[str, float]] = {}
        for name, labels, number in self.samples():
            if name in wanted_names:
                of_connector = sums.setdefault(labels["connector"], {})
                of_connector[name] = of_connector.get(name, 0.0) + number
        return sums

    def collect(self) -> Iterator[Family]:
        """Metric families for prometheus_client."""
        by_name: dict[str, list[Sample]] = {}
        for sample in self.samples():
            by_name.setdefault(sample[0], []).append(sample)
        for metric in CATALOGUE:
            yield _family(metric, by_name.get(metric.name, []))

    def also(self, collector: Collector) -> None:
        """Expose what another collector has, too."""
        self._registry.register(collector)

    def families(self) -> Iterable[PrometheusMetric]:
        """Return everything that is exposed, also what other collectors have."""
        return self._registry.collect()

    def text(self) -> str:
        """Prometheus' text format."""
        return generate_latest(self._registry).decode()


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    name, labels = metric.prefix + metric.name, list(metric.labels)
    if metric.kind == "histogram":
        return _histogram(HistogramMetricFamily(name, metric.doc, labels=labels), samples)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = kind(name, metric.doc, labels=labels)
    for _, of_sample, number in samples:
        family.add_metric([of_sample[label] for label in labels], number)
    return family


def _histogram(family: HistogramMetricFamily, samples: Iterable[Sample]) -> HistogramMetricFamily:
    by_labels: dict[tuple[str, ...], dict[str, float]] = {}
    for _, labels, number in samples:
        *label_values, bucket = (value for value in labels.values())
        by_labels.setdefault(tuple(label_values), {})[bucket] = number
    for labelled, counts in by_labels.items():
        buckets, total = [], 0.0
        for bound in _BUCKETS:
            total += counts.get(bound, 0.0)
            buckets.append((bound, total))
        family.add_metric(list(labelled), buckets, counts.get(SUM, 0.0))
    return family
