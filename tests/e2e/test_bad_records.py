"""Records that cannot be stored: the task stops and says where, or they are dead letters, once."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.running_stack import RunningStack, pick
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
CONTENT = "content-5a1b"
DEAD_LETTERS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.replication.factor": "1",
}


# a value, and what the trace has of it
REFUSED: list[tuple[Any, str]] = [
    ({"id": CONTENT, "name": "x"}, "column=id"),
    ({"id": 1.5, "name": CONTENT}, "column=id"),
    ({"id": 2**70, "name": CONTENT}, "column=id"),
    (f'{{"id": 1, "name": "{CONTENT}'.encode(), "not valid JSON"),
    (f'"{CONTENT}"'.encode(), ""),
]


def test_a_bad_record_fails_the_task_and_is_named(running: RunningStack) -> None:
    """The trace has topic, partition, offset and column, and no content. Each task has its own."""
    name, count = unique_name("refuses"), len(REFUSED)
    topic = running.topic("bad", partitions=count)
    for partition, (value, _) in enumerate(REFUSED):
        good = ({"id": 1, "name": "x"}, {"id": 2, "name": "y"})
        running.produce(topic, *good, partition=partition)
        headers = [("h", CONTENT.encode())]
        running.produce(topic, value, partition=partition, key=CONTENT, headers=headers)
    running.table(f"bad.{name}")
    config = running.connector(topics=topic, iceberg__tables=f"bad.{name}", tasks__max=str(count))
    running.create(name, {**config, "icefloe.tasks.per.worker": str(count)})

    def failed() -> list[str] | None:
        tasks = running.status(name)["tasks"]
        traces = [task["trace"] for task in tasks if task["state"] == "FAILED" and "trace" in task]
        return traces if len(traces) == count else None

    traces = running.wait_until(failed, lambda: f"all tasks to fail: {running.status(name)}")
    causes = [trace.partition("\n")[0] for trace in traces]
    for partition, (_, text) in enumerate(REFUSED):
        place = f"topic={topic}, partition={partition}, offset=2"
        cause = next((cause for cause in causes if place in cause), str(causes))
        assert place in cause
        assert "errors.tolerance" in cause
        assert text in cause
    assert CONTENT not in running.api.get(f"/connectors/{name}/status").text
    _follow_the_advice(running, name, topic)
    assert not [file for file, text in running.logs().items() if CONTENT in text]
    assert CONTENT not in running.api.get("/metrics").text
    running.delete(name)


def _follow_the_advice(running: RunningStack, name: str, topic: str) -> None:
    """Set what the errors name, until the records are dead letters that a command explains."""
    letters = f"{name}-letters"
    topic_name = f"errors.deadletterqueue.topic.name={letters}"
    assert running.icefloe("patch", name, "errors.tolerance=all", topic_name)[0] == 0
    factor = "errors.deadletterqueue.topic.replication.factor"
    running.wait_until(
        lambda: factor in running.trace(name), lambda: f"{factor}: {running.trace(name)}"
    )
    assert running.icefloe("patch", name, f"{factor}=1")[0] == 0
    count = f"topic {letters}: {len(REFUSED)} dead letters"
    running.wait_until(
        lambda: count in running.icefloe("dlq", "list", name)[1],
        lambda: f"{count}: {running.icefloe('dlq', 'list', name)}",
    )
    _, listed = running.icefloe("dlq", "list", name)
    assert "unknown" not in listed.replace("table unknown", "")
    assert f"source topic {topic}" in listed
    record = running.records(letters)[0]
    assert not [key for key, _ in record.headers() if key.startswith("__connect.errors")]


@pytest.mark.faults
def test_bad_records_are_dead_letters_once_even_when_the_worker_is_killed(
    running: RunningStack,
) -> None:
    """Unchanged bytes, then Connect's headers; other records are rows; the counts agree."""
    name = unique_name("tolerates")
    topic, dead_letters = running.topic("mixed", partitions=2), unique_name("letters")
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())
    )
    running.table(f"bad.{name}", schema=schema)
    config = {
        **running.connector(topics=topic, iceberg__tables=f"bad.{name}"),
        **DEAD_LETTERS,
        "errors.deadletterqueue.topic.name": dead_letters,
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    bad = _mix(running, topic, 0, 200)
    running.create(name, config)
    running.rows(f"bad.{name}", 150, name)
    counts = running.wait_until(
        lambda: (c := running.counts(name))["records_read"] >= 200 and c,
        lambda: f"counts: {running.counts(name)}",
    )
    assert counts["records_written"] == 150
    assert counts["records_dead_lettered"] == 50
    assert counts["records_dropped"] == 0
    running.wait_until(
        lambda: running.counts(name)["records_committed"] == 150,
        lambda: "the committed records to be counted",
    )
    bad += _mix(running, topic, 200, 400)
    running.child("worker").send_signal(signal.SIGKILL)
    bad += _mix(running, topic, 400, 600)
    rows = running.rows(f"bad.{name}", 450, name)
    assert pick(rows, "id") == [(n,) for n in range(600) if n % 4]
    letters = running.records(dead_letters)
    assert sorted((r.key(), r.value()) for r in letters) == sorted(bad)
    for record in letters:
        headers = record.headers()
        assert headers[:3] == [("h", b"\x00\xff"), ("h", None), ("", b"")]
        reported = dict(headers[3:])
        assert reported["__connect.errors.topic"] == topic.encode()
        assert reported["__connect.errors.connector.name"] == name.encode()
        assert reported["__connect.errors.task.id"] == b"0"
        assert reported["__connect.errors.stage"] in {b"VALUE_CONVERTER", b"TASK_PUT"}
        assert reported["__connect.errors.exception.message"]
        place = (
            int(reported["__connect.errors.partition"]),
            int(reported["__connect.errors.offset"]),
        )
        number = int(record.key()[1:])
        assert place == (number // 4 % 2, number // 8 * 4)
    done = ("records_written", "records_dead_lettered", "records_dropped")

    def is_balanced() -> bool:
        counts = running.counts(name)
        return counts["records_read"] == sum(counts[one] for one in done)

    running.wait_until(is_balanced, lambda: f"equal counts: {running.counts(name)}")
    running.delete(name)


def _mix(
    running: RunningStack, topic: str, start: int, end: int
) -> list[tuple[bytes, bytes | None]]:
    """Every fourth record is bad; keys and values of those.

    Blocks of four go to the partitions in turn, so a bad one is each partition's 4n-th.
    """
    forms = (b'{"id": null}', b"\xff\xfe{", b'{"id": "x"}', b"[]")
    bad = []
    for n in range(start, end):
        value: Any = {"id": n, "name": f"n{n}"}
        if n % 4 == 0:
            value = forms[n // 4 % len(forms)]
            bad.append((f"k{n}".encode(), value))
        headers = [("h", b"\x00\xff"), ("h", None), ("", b"")]
        running.produce(topic, value, partition=n // 4 % 2, key=f"k{n}", headers=headers)
    return bad
