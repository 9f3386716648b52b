"""Rows to webhooks: batches, ids, repetitions, dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from connect.clock import SystemClock
from connect.errors import ConfigError, RetriableError
from connect.model.layout import TopicPartition
from tests.differential.support import config
from worker.batch.messages import SCHEMA, MessageChunk
from worker.task.read_ledger import OffsetRanges, TaskAnnouncement, WrittenBatch
from worker.task.rounds import webhook_posts
from worker.task.rounds.webhook_posts import WebhookPosts
from worker.task.task_context import BATCH_STOP_MS, TaskStop

TP = TopicPartition("t", 0)
HOOK = "icefloe.output.hook."
OUTPUTS = {
    "icefloe.outputs": "alerts,hook",
    "icefloe.output.alerts.topic": "alerts",
    f"{HOOK}webhook.url": "http://127.0.0.1:9/rows",
    f"{HOOK}webhook.batch.rows": "3",
}
LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}


@dataclass
class Server:
    """Accepts rows, after it has raised the given errors."""

    errors: list[Exception] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    durations_ms: list[int] = field(default_factory=list)
    is_closed: bool = False

    def post_within(
        self, duration_ms: int, body: bytes, idempotency_key: str, _: Callable[[int], bool]
    ) -> None:
        """Keep a request, without a repetition."""
        self.keys.append(idempotency_key)
        self.durations_ms.append(duration_ms)
        if self.errors:
            raise self.errors.pop(0)
        self.bodies.append(json.loads(body))

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


def answer(*offsets: int, value: bytes = b'{"id":1}') -> TaskAnnouncement:
    """An answer with a row for both outputs of each of these records."""
    rows = [
        {"output": output, "key": b"k\xff", "value": value, "timestamp": 5, "topic": "t"}
        | {"partition": 0, "offset": offset}
        for offset in offsets
        for output in (0, 1)
    ]
    chunk = MessageChunk.of(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    batch = WrittenBatch(OffsetRanges({TP: 0}, {TP: 9}), {}, messages=(chunk,))
    return TaskAnnouncement((batch,), (), (), {})


class RequestClock(SystemClock):
    """Time that only requests of a server take.

    Args:
        server: that takes them.
        request_ms: of each of them.
    """

    def __init__(self, server: Server, request_ms: int) -> None:
        self._server, self._request_ms = server, request_ms

    def monotonic_ms(self) -> int:
        """The time of the requests."""
        return len(self._server.keys) * self._request_ms


def posts(server: Server, *, request_ms: int = 0, **more: str) -> tuple[WebhookPosts, TaskStop]:
    """The webhook of a connector."""
    stop, clock = TaskStop(), RequestClock(server, request_ms)
    return WebhookPosts(config(**{**OUTPUTS, **more}), {1: server}, stop, clock), stop


ONE_BY_ONE = {f"{HOOK}webhook.batch.rows": "1"}
UNAVAILABLE = RetriableError("down", code="webhook_unavailable")
REFUSED = ConfigError("HTTP 400", code="webhook_refused")


def test_rows_are_posted_in_batches_with_ids() -> None:
    """An id is topic, partition and offset of the record, and the row's number in it."""
    server = Server()
    result = posts(server)[0].post(answer(4, 5, 5, 6))
    assert (result.posted, result.refused, result.dead_letters) == (4, 0, [])
    first, second = server.bodies
    assert {k: first[k] for k in ("connector", "output")} == {"connector": "c1", "output": "hook"}
    assert [row["id"] for row in first["rows"]] == ["t/0/4/0", "t/0/5/0", "t/0/5/1"]
    (row,) = second["rows"]
    assert row == {
        "id": "t/0/6/0",
        "topic": "t",
        "partition": 0,
        "offset": 6,
        "timestamp": 5,
        "key": "k\ufffd",
        "value": {"id": 1},
    }
    assert server.keys[1] == "t/0/6/0"
    again = Server()
    posts(again)[0].post(answer(4, 5, 5, 6))
    assert again.keys == server.keys, "equal rows have equal keys"


def test_each_post_is_progress_of_the_task() -> None:
    """An answer may take hours: the task must not seem to hang in it."""
    server = Server()
    made, _ = posts(server, **ONE_BY_ONE)
    seen: list[int] = []
    made.on_progress = lambda: seen.append(len(server.bodies))
    made.post(answer(4, 5, 6))
    assert made.may_repeat_after(0)
    assert seen == [0, 1, 2, 3]


def test_a_request_is_bounded_in_bytes() -> None:
    """A single row of any size is posted."""
    server = Server()
    value = json.dumps({"x": "x" * (webhook_posts.BATCH_BYTES * 2 // 3)}).encode()
    posts(server)[0].post(answer(1, 2, value=value))
    assert [len(body["rows"]) for body in server.bodies] == [1, 1]


def test_rows_are_repeated_for_the_configured_time() -> None:
    """Then the task restarts and no offset is stored."""
    down = Server([UNAVAILABLE])
    made, _ = posts(down, **{f"{HOOK}webhook.retry.ms": "20000"})
    with pytest.raises(RetriableError) as e:
        made.post(answer(1))
    assert e.value is UNAVAILABLE
    assert down.durations_ms == [20_000]


def test_a_stop_ends_the_repetition() -> None:
    """The rows are posted again after the next start."""
    server = Server([UNAVAILABLE] * 9)
    made, stop = posts(server, **LETTERS)
    assert made.may_repeat_after(0)
    stop.request()
    assert not made.may_repeat_after(60_000)
    with pytest.raises(RetriableError):
        made.post(answer(1))
    assert len(server.keys) == 1


def test_a_stop_does_not_wait_for_thousands_of_requests() -> None:
    """It waits as long as for a batch. The rows are posted again, and are no dead letters."""
    server = Server()
    made, stop = posts(server, request_ms=1_000, **LETTERS, **ONE_BY_ONE)
    stop.request()
    with pytest.raises(RetriableError, match="posted again after the next start"):
        made.post(answer(*range(5_000)))
    assert len(server.bodies) == BATCH_STOP_MS // 1_000
    again, _ = posts(Server(), **ONE_BY_ONE)
    assert again.post(answer(*range(5_000))).posted == 5_000


def test_a_stop_waits_for_a_fast_server() -> None:
    """So the files of the answer are announced."""
    server = Server()
    made, stop = posts(server, request_ms=1, **ONE_BY_ONE)
    stop.request()
    assert made.post(answer(*range(1_000))).posted == 1_000


@pytest.mark.parametrize("error", [UNAVAILABLE, REFUSED])
def test_rows_that_are_not_accepted_become_dead_letters(error: Exception) -> None:
    """With tolerance; the remaining rows of the answer are not tried any more."""
    server = Server([error] * 1_000)
    made, _ = posts(server, **LETTERS)
    result = made.post(answer(1, 2, 3, 4))
    assert (result.posted, result.refused) == (0, 4)
    assert len(set(server.keys)) == 1
    assert len(result.dead_letters) == 4
    letter = result.dead_letters[3]
    assert (letter.topic, letter.key, letter.value) == ("letters", b"k\xff", b'{"id":1}')
    headers = {name: (text or b"").decode() for name, text in letter.headers}
    assert headers == {
        "__icefloe.output.name": "hook",
        "__icefloe.output.id": "t/0/4/0",
        "__icefloe.output.error": error.args[0],
    }
    server.errors.clear()
    assert made.post(answer(5)).posted == 1, "the next answer is tried again"


def test_a_refusal_is_final() -> None:
    """Without tolerance the task fails."""
    made, _ = posts(Server([REFUSED]))
    with pytest.raises(ConfigError):
        made.post(answer(1))


def test_a_forbidden_address_is_never_tolerated() -> None:
    """The operator must know."""
    server = Server([ConfigError("no", code="host_refused")])
    with pytest.raises(ConfigError):
        posts(server, **LETTERS)[0].post(answer(1))


def test_servers_are_opened_for_webhooks_only() -> None:
    """And closed."""
    made = WebhookPosts.of(config(**OUTPUTS), SystemClock(), TaskStop())
    assert list(made.servers) == [1]
    made.close()
    server = Server()
    posts(server)[0].close()
    assert server.is_closed
