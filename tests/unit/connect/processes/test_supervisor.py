import io
import json
import os
import queue
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import structlog

from connect import logs
from connect.backoff import Backoff, BackoffPolicy
from connect.clock import SystemClock
from connect.processes.supervisor import ChildSpec, SupervisedChild

SCRIPT = textwrap.dedent(
    """
    import os, subprocess, sys, time
    from connect.processes.ipc import VERSION, Channel

    channel = Channel.inherited(int(os.environ["ICEFLOE_IPC_FD"]))
    print("hello from the child", file=sys.stderr, flush=True)
    grandchild = None
    for message in channel.receive():
        if message["op"] == "configure":
            grandchild = subprocess.Popen(["sleep", "600"])
            channel.send({"event": "ready", "pid": os.getpid(), "grandchild": grandchild.pid,
                          "version": os.environ.get("TEST_VERSION", VERSION),
                          "properties": message["properties"]})
        elif message["op"] == "echo":
            channel.send({"event": "echo", "text": message["text"]})
        elif message["op"] == "exit":
            sys.exit(message["status"])
        elif message["op"] == "hang":
            time.sleep(600)
        elif message["op"] == "shutdown":
            channel.send({"event": "bye", "grace_ms": message["grace_ms"]})
            sys.exit(0)
    """
)
Events = queue.Queue[dict[str, Any]]
WAIT_S = 60  # for what comes at once on an idle machine


@pytest.fixture
def child(tmp_path: Path) -> Iterator[tuple[SupervisedChild, Events]]:
    """A supervised child that runs the script above."""
    events: Events = queue.Queue()
    spec = ChildSpec(
        name="worker",
        command=[sys.executable, "-c", SCRIPT],
        log_file=tmp_path / "worker.log",
        properties={"a": "${env:B}"},
        environ=dict(os.environ),
    )
    policy = BackoffPolicy(first_ms=10, longest_ms=50, stable_ms=60_000)
    supervised = SupervisedChild(spec, lambda _, event: events.put(event), SystemClock(), policy)
    supervised.start()
    yield supervised, events
    supervised.shutdown(100)


def test_a_child_gets_its_configuration_and_answers(child: tuple[SupervisedChild, Events]) -> None:
    """Properties are sent over the pipe with unresolved placeholders."""
    supervised, events = child
    ready = events.get(timeout=WAIT_S)
    assert ready["properties"] == {"a": "${env:B}"}
    assert ready["pid"] == supervised.pid
    supervised.send({"op": "echo", "text": "x" * 1_000_000})
    assert len(events.get(timeout=WAIT_S)["text"]) == 1_000_000
    assert "hello from the child" in supervised.spec.log_file.read_text()


def test_a_killed_child_is_restarted_without_leftover_processes(
    child: tuple[SupervisedChild, Events],
) -> None:
    """Its process group is killed."""
    supervised, events = child
    first = events.get(timeout=WAIT_S)
    os.kill(first["pid"], signal.SIGKILL)
    exited = events.get(timeout=WAIT_S)
    assert exited["event"] == "exited"
    assert exited["status"] == -signal.SIGKILL
    second = events.get(timeout=WAIT_S)
    assert second["event"] == "ready"
    assert second["pid"] != first["pid"]
    assert _has_ended(first["grandchild"])
    assert supervised.restarts == 1


def test_a_message_waits_for_a_child_that_starts_again(tmp_path: Path) -> None:
    """The next child gets it; without a wait it is refused while no child runs."""
    events: Events = queue.Queue()
    may_start = threading.Event()

    def on_event(_: str, event: dict[str, Any]) -> None:
        events.put(event)
        if event["event"] == "exited":
            may_start.wait(WAIT_S)

    spec = ChildSpec(
        "worker", [sys.executable, "-c", SCRIPT], tmp_path / "log", {}, dict(os.environ)
    )
    supervised = SupervisedChild(spec, on_event, SystemClock(), BackoffPolicy(first_ms=10))
    supervised.start()
    try:
        os.kill(events.get(timeout=WAIT_S)["pid"], signal.SIGKILL)
        assert events.get(timeout=WAIT_S)["event"] == "exited"
        message = {"op": "echo", "text": "waited"}
        assert not supervised.send(message)
        with ThreadPoolExecutor() as pool:
            sent = pool.submit(supervised.send, message, wait_s=WAIT_S)
            may_start.set()
            assert sent.result(WAIT_S)
        assert events.get(timeout=WAIT_S)["event"] == "ready"
        assert events.get(timeout=WAIT_S)["text"] == "waited"
    finally:
        may_start.set()
        supervised.shutdown(100)


def test_a_frozen_child_is_replaced(tmp_path: Path) -> None:
    """It was ready and sends no event; a child that sends events is kept."""
    events: Events = queue.Queue()
    command = [sys.executable, "-c", SCRIPT]
    spec = ChildSpec("worker", command, tmp_path / "worker.log", {}, dict(os.environ))
    policy = BackoffPolicy(first_ms=10, longest_ms=50)
    supervised = SupervisedChild(
        spec, lambda _, event: events.put(event), SystemClock(), policy, silence_ms_max=5_000
    )
    supervised.start()
    try:
        first = events.get(timeout=WAIT_S)
        for _ in range(20):
            supervised.send({"op": "echo", "text": "alive"})
            assert events.get(timeout=WAIT_S)["event"] == "echo"
            time.sleep(0.3)
        os.kill(first["pid"], signal.SIGSTOP)
        assert events.get(timeout=WAIT_S)["status"] == -signal.SIGKILL
        assert events.get(timeout=WAIT_S)["pid"] != first["pid"]
        assert _has_ended(first["grandchild"])
    finally:
        supervised.shutdown(100)


def test_exit_status_and_end_of_output_are_reported(child: tuple[SupervisedChild, Events]) -> None:
    """The event of an unexpected end has the tail of the log."""
    supervised, events = child
    events.get(timeout=WAIT_S)
    supervised.send({"op": "exit", "status": 3})
    exited = events.get(timeout=WAIT_S)
    assert exited["status"] == 3
    assert "hello from the child" in exited["trace"]


def test_shutdown_lets_the_child_drain(child: tuple[SupervisedChild, Events]) -> None:
    """The child gets the request and its grace period, and is not restarted."""
    supervised, events = child
    pid = events.get(timeout=WAIT_S)["pid"]
    supervised.shutdown(60_000)
    assert events.get(timeout=WAIT_S) == {"event": "bye", "grace_ms": 60_000}
    assert events.empty()
    assert not _is_alive(pid)
    assert supervised.pid is None
    assert not supervised.send({"op": "echo", "text": "hello"})


@pytest.mark.parametrize("how", ["hang", "stopped"])
def test_a_child_that_ignores_the_shutdown_is_killed(
    child: tuple[SupervisedChild, Events], how: str
) -> None:
    """After its grace period, also a paused one; no sender blocks."""
    supervised, events = child
    ready = events.get(timeout=WAIT_S)
    if how == "hang":
        supervised.send({"op": "hang"})
    else:
        os.kill(ready["pid"], signal.SIGSTOP)
    for _ in range(100):
        supervised.send({"op": "echo", "text": "x" * 10_000})  # far more than the pipe holds
    threads_before = threading.active_count()
    supervised.shutdown(300)
    assert not _is_alive(ready["pid"])
    assert _has_ended(ready["grandchild"])
    assert threading.active_count() < threads_before


NOISY = textwrap.dedent(
    """
    import json, os, signal, sys, threading
    from connect.processes.ipc import Channel

    channel = Channel.inherited(int(os.environ["ICEFLOE_IPC_FD"]))

    def events():
        for number in range(2_000):
            event = {"event": "e" * (40_000 if number % 100 == 0 else 10), "process": "p"}
            sys.stdout.write(json.dumps({**event, "number": number}) + "\\n")
            sys.stdout.flush()

    def texts():
        for number in range(2_000):
            sys.stderr.write(f"text {number} " + "t" * 50 + "\\n")

    threads = [threading.Thread(target=each) for each in (events, texts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stderr.write("no end of line")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    """
)


def test_no_forwarded_line_is_lost_or_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """Two streams of a child that is killed: each line is complete and in order."""
    stream = io.StringIO()
    logs.configure("node", stream=stream)
    events: Events = queue.Queue()
    spec = ChildSpec("worker", [sys.executable, "-c", NOISY], None, {}, dict(os.environ))
    policy = BackoffPolicy(first_ms=60_000, longest_ms=60_000)
    supervised = SupervisedChild(spec, lambda _, event: events.put(event), SystemClock(), policy)
    supervised.start()
    try:
        for number in range(200):
            logs.logger("herder").info("of the node", number=number)
        exited = events.get(timeout=WAIT_S)
    finally:
        supervised.shutdown(100)
        structlog.reset_defaults()
    assert exited["trace"].endswith("no end of line")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    forwarded = [line for line in lines if line["process"] == "worker"]
    numbered = [line["number"] for line in forwarded if "number" in line]
    assert numbered == list(range(2_000))
    texts = [line["event"] for line in forwarded if "number" not in line]
    assert texts == [*(f"text {n} " + "t" * 50 for n in range(2_000)), "no end of line"]
    assert sum(line["event"] == "of the node" for line in lines) == 200
    assert not capsys.readouterr().out


def test_the_log_file_is_bounded(
    child: tuple[SupervisedChild, Events], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long log is renamed, and the child writes to a new one."""
    supervised, events = child
    events.get(timeout=WAIT_S)
    monkeypatch.setattr("connect.processes.child_output.LOG_BYTES_MAX", 10)
    supervised.trim_log()
    assert supervised.spec.log_file.stat().st_size == 0
    assert supervised.spec.log_file.with_suffix(".log.1").stat().st_size == 5


@pytest.mark.parametrize(
    ("program", "theirs"),
    [
        (SCRIPT, "0.0.9"),
        (SCRIPT.replace('"version"', '"other"'), None),
        ("from coordinator.__main__ import main; main()", "0.0.8"),
    ],
    ids=["the child is older", "it sends no version", "the child refuses the node"],
)
def test_a_child_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, theirs: str | None
) -> None:
    """Whichever of the two checks: the node gets one sentence, no other event, and it is killed."""
    events: Events = queue.Queue()
    environ = {**os.environ, **({"TEST_VERSION": theirs} if theirs else {})}
    if "coordinator" in program:
        monkeypatch.setattr("connect.processes.supervisor.VERSION", theirs)
    spec = ChildSpec(
        name="coordinator",
        command=[sys.executable, "-c", program],
        log_file=tmp_path / "coordinator.log",
        properties={},
        environ=environ,
    )
    policy = BackoffPolicy(first_ms=600_000, longest_ms=600_000, stable_ms=60_000)
    supervised = SupervisedChild(spec, lambda _, event: events.put(event), SystemClock(), policy)
    supervised.start()
    try:
        refused = events.get(timeout=WAIT_S)
        assert refused["event"] == "refused"
        assert theirs is None or theirs in refused["message"]
        assert "start the node again" in refused["message"]
        assert not supervised.is_ready
        assert events.get(timeout=WAIT_S)["event"] == "exited"
    finally:
        supervised.shutdown(100)


def test_the_back_off_doubles_up_to_a_limit() -> None:
    """Pauses are 1, 2, 4, 4; a run longer than the stable time resets it."""
    backoff = Backoff(BackoffPolicy(first_ms=1, longest_ms=4, stable_ms=100))
    pauses = []
    for now in range(4):
        backoff.started(now)
        pauses.append(backoff.failed(now))
    assert pauses == [1, 2, 4, 4]
    backoff.started(1_000)
    assert backoff.failed(1_100) == 1


def test_the_back_off_ends_after_the_allowed_restarts() -> None:
    """A request of an operator resets it."""
    backoff = Backoff(BackoffPolicy(first_ms=1, restarts_max=1))
    assert backoff.failed(0) == 1
    assert backoff.failed(0) is None
    backoff.reset()
    assert backoff.failed(0) == 1


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _has_ended(pid: int) -> bool:
    """A signal of the group reaches its members a moment after the leader is gone."""
    deadline = time.monotonic() + WAIT_S
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _is_alive(pid)
