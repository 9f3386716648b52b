"""Child processes: waiting, stopping, and the end of their output."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from connect.embedded.broker import cluster_id_text
from connect.errors import ConfigError, RetriableError
from connect.processes.child_process import ChildProcess, DirLock, free_port, require_free_port

Start = Callable[[str], ChildProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts Python code as a child; ends what is left."""
    children = []

    def run(code: str) -> ChildProcess:
        command = [sys.executable, "-c", code]
        children.append(ChildProcess("the child", command, log_file=tmp_path / "log"))
        return children[-1]

    yield run
    for child in children:
        child.kill()


def test_the_error_of_a_child_that_ends_early_has_its_output(start: Start) -> None:
    """And its status."""
    child = start("import sys; print('no luck'); sys.exit(3)")
    with pytest.raises(RetriableError, match=r"status 3(.|\n)*no luck") as caught:
        child.wait_until(lambda: False, timeout_ms=60_000)
    assert caught.value.code == "child_died"


def test_the_wait_for_a_silent_child_ends(start: Start) -> None:
    """The child keeps running."""
    child = start("import time; time.sleep(60)")
    with pytest.raises(RetriableError) as caught:
        child.wait_until(lambda: False, timeout_ms=50)
    assert caught.value.code == "child_silent"
    assert child.is_running


def test_the_tail_of_a_log_is_of_this_child_only(start: Start) -> None:
    """An earlier child wrote to the same file."""
    first, second = "print('first')", "print('second')"
    start(first).stop(timeout_ms=60_000)
    child = start(second)
    while child.is_running:
        time.sleep(0.01)
    assert child.tail() == "second"


def test_a_child_that_ignores_the_stop_is_killed(start: Start) -> None:
    """One that ignores the request is ended after the time."""
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True); time.sleep(60)"
    )
    child = start(code)
    child.wait_until(lambda: "deaf" in child.tail(), timeout_ms=60_000)
    assert child.stop(timeout_ms=100) == -signal.SIGKILL


def test_a_frozen_child_can_be_stopped(start: Start) -> None:
    """A paused child still acts on the request to end."""
    child = start("print('up', flush=True); import time; time.sleep(60)")
    child.wait_until(lambda: "up" in child.tail(), timeout_ms=60_000)
    child.signal(signal.SIGSTOP)
    assert child.stop(timeout_ms=60_000) == -signal.SIGTERM


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    """A second owner is refused until the first releases it; locking twice is allowed."""
    first, second = DirLock("a test"), DirLock("a test")
    first.acquire(tmp_path)
    first.acquire(tmp_path)
    with pytest.raises(ConfigError) as caught:
        second.acquire(tmp_path)
    assert caught.value.code == "state_in_use"
    first.release()
    second.acquire(tmp_path)
    second.release()


def test_a_free_port_is_free() -> None:
    """It is not returned twice before a process listens on it."""
    ports = [free_port() for _ in range(20)]
    assert len(set(ports)) == 20
    for port in ports:
        require_free_port(port, name="a test", option="--port")


def test_a_free_port_is_reserved_for_a_server() -> None:
    """Another process does not get it before the server listens, also when that takes long."""
    port = free_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    for _ in range(2):  # a server may start again
        with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError):
            require_free_port(port, name="a test", option="--port")
        require_free_port(port, name="a test", option="--port")


def test_a_free_port_is_outside_the_ephemeral_range() -> None:
    """A connection cannot take it from a server that is about to start."""
    port = free_port()
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
        assert port < min(server.getsockname()[1], client.getsockname()[1])


def test_ports_in_use_are_skipped() -> None:
    """A port that a process listens on is not returned."""
    with socket.socket() as listener:
        while not listener.getsockname()[1]:
            with contextlib.suppress(OSError):  # another process may use the port after a free one
                listener.bind(("127.0.0.1", free_port() + 1))
        assert free_port() != listener.getsockname()[1]


def test_a_cluster_id_does_not_start_with_a_dash() -> None:
    """A command would take it for an option."""
    assert cluster_id_text(UUID(int=0xF8 << 120)).startswith("A")
    assert cluster_id_text(UUID(int=0)) == "A" * 22
