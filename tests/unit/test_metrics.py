import socket
import threading
from pathlib import Path

import pytest

from connect import metrics
from connect.errors import InvariantViolation
from connect.ipc import Channel
from connect.metrics import Exposition, Registry

ROOT = Path(__file__).parents[2]


def test_document_is_current() -> None:
    """``docs/metrics.md`` is what the catalogue says."""
    assert (ROOT / "docs" / "metrics.md").read_text() == metrics.documentation()


def test_names_are_declared_once() -> None:
    """Two declarations of one name would hide each other."""
    names = [metric.name for metric in metrics.CATALOGUE]
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
def test_undeclared_use_is_a_bug(kind: metrics.Kind, name: str, labels: dict[str, object]) -> None:
    """Name, kind and labels must be those of the catalogue."""
    with pytest.raises(InvariantViolation):
        Registry().value(kind, name, labels)


def test_children_tell_the_node_and_the_node_tells_prometheus() -> None:
    """Absolute values cross the pipe when they change and come out in the text format."""
    ours, theirs = socket.socketpair()
    node, child = Channel(ours), Channel(theirs)
    registry = Registry()
    registry.value("counter", "rounds", {"connector": 'c"1'}).inc()
    thread = metrics.start_reporting(child, registry)
    exposition = Exposition(lambda: 5_000, registry=Registry())
    received = node.receive()
    first = next(received)
    registry.value("counter", "rounds", {"connector": 'c"1'}).inc(2)
    registry.value("gauge", "valid_through_timestamp_seconds", {"connector": "c"}).set(2)
    second = next(received)
    exposition.heard("coordinator", first["samples"])
    exposition.heard("coordinator", second["samples"])
    text = exposition.text()
    assert 'icefloe_rounds_total{connector="c\\"1"} 3.0' in text
    assert 'icefloe_valid_through_age_seconds{connector="c"} 3.0' in text
    node.close()
    registry.value("counter", "rounds", {"connector": "c"}).inc()
    thread.join(5)
    assert not thread.is_alive()
    child.close()


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit values are counted under one name, none is lost."""
    monkeypatch.setattr(metrics, "SERIES_MAX", 3)
    registry = Registry()
    for number in range(10):
        registry.value("counter", "rounds", {"connector": str(number)}).inc()
    samples = registry.snapshot()[1]
    assert len(samples) == 4
    assert sum(number for _, _, number in samples) == 10
    assert ("rounds", {"connector": "other"}, 7.0) in samples


def test_values_of_gone_connectors_disappear() -> None:
    """Neither the node nor a child goes on exposing a deleted connector."""
    known = {"a"}
    registry = Registry()
    for name in ("a", "b"):
        registry.value("counter", "rounds", {"connector": name}).inc()
    exposition = Exposition(lambda: 0, known.__contains__, registry)
    assert [labels for _, labels, _ in exposition.samples()] == [{"connector": "a"}]
    registry.forget(connector="a")
    assert exposition.samples() == []


def test_what_a_child_sends_is_checked() -> None:
    """A sample that is not declared is left out, the others count."""
    exposition = Exposition(lambda: 0, registry=Registry())
    exposition.heard("worker", [["nonsense", {}, 1], ["rounds", {"connector": "c"}, 1]])
    assert exposition.samples() == [("rounds", {"connector": "c"}, 1.0)]


def test_counting_is_safe_for_threads() -> None:
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
