"""What a user gets wrong is said in one line that names it and says what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Protocol

import httpx
import pytest

from connect.gateways.public_trust import public_trust
from connect.processes.child_process import free_port
from tests.support.forked_commands import ForkedCommands

ICEFLOE = str(Path(sys.executable).with_name("icefloe"))
TIMEOUT_S = 300
NODE = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
    "listeners": "http://127.0.0.1:0",
    "icefloe.state.dir": "state",
}


class Icefloe(Protocol):
    """Runs the command in a folder; it must end by itself."""

    def __call__(
        self, folder: Path, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Return what it came to."""


@pytest.fixture
def icefloe(commands: ForkedCommands) -> Icefloe:
    """The command, in a process that is forked after its imports."""
    return partial(run, str(commands.path / "icefloe"))


def run(
    program: str, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder; it must end by itself."""
    return subprocess.run(
        [program, *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "TERMINAL_WIDTH": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command whose arguments, files or environment are wrong."""
    assert done.returncode == 2, done
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    reported = [line for line in lines if not line.startswith(("{", "state and logs:"))]
    assert len(reported) == 1, lines
    return reported[0]


def properties(folder: Path, **more: str) -> str:
    """A node's properties file; ``__`` for a dot."""
    given = {**NODE, **{key.replace("__", "."): value for key, value in more.items()}}
    file = folder / "node.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
    return str(file)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Yield a port that is in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def old_java(folder: Path) -> Path:
    """The folder of a Java that says it is version 11."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    program.chmod(0o755)
    return folder


# ------------------------------------------------------------------ the command line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("node",), "Invalid value for '--properties': name a file"),
        (("nodee",), "No such command 'nodee'. Did you mean 'node'?"),
        (("node", "--propertys", "x"), "No such option: --propertys"),
        (("node", "-p", "x", "y"), "unexpected extra argument(s) (y)"),
        (("demo", "--records", "0"), "Invalid value for '--records'"),
        (("demo", "--records", "many"), "Invalid value for '--records'"),
        (("up", "--rest-port", "65536"), "Invalid value for '--rest-port'"),
        (("up", "--broker-port", "-1"), "Invalid value for '--broker-port'"),
        (("control", "nope"), "No such command 'nope'"),
    ],
)
def test_a_wrong_argument_is_named(
    icefloe: Icefloe, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """The exit status is 2; stderr shows the usage and the argument."""
    done = icefloe(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Usage: icefloe" in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ the node's start


def test_a_missing_properties_file_is_named(icefloe: Icefloe, tmp_path: Path) -> None:
    """A folder is no file either."""
    output = complaint(icefloe(tmp_path, "node", "--properties", "gone.properties"))
    assert "gone.properties: No such file or directory; name a file that exists" in output
    assert "Is a directory" in complaint(icefloe(tmp_path, "node", "--properties", "."))


def test_a_malformed_properties_file_is_named_with_its_line(
    icefloe: Icefloe, tmp_path: Path
) -> None:
    """A single backslash, as in a Windows path: file, line and the correct form."""
    file = tmp_path / "node.properties"
    file.write_text("group.id=g\nicefloe.state.dir=C:\\users\\x\n")
    output = complaint(icefloe(tmp_path, "node", "--properties", str(file)))
    assert str(file) in output
    assert "malformed \\u escape in line 2; a backslash is written \\\\" in output


def test_unknown_and_missing_node_keys_are_named(icefloe: Icefloe, tmp_path: Path) -> None:
    """Every error is in one line; an unknown key has the nearest known one."""
    file = properties(tmp_path, icefloe__sttate__dir="x", icefloe__drain__grace__ms="soon")
    text = Path(file).read_text().replace("group.id=g\n", "")
    Path(file).write_text(text)
    output = complaint(icefloe(tmp_path, "node", "--properties", file))
    assert "Unknown configuration icefloe.sttate.dir. Did you mean icefloe.state.dir?" in output
    assert "icefloe.drain.grace.ms: Invalid value soon" in output
    assert 'Missing required configuration "group.id"' in output


def test_a_node_address_in_use_is_named(icefloe: Icefloe, tmp_path: Path, taken_port: int) -> None:
    """The listener, and the remedy."""
    file = properties(tmp_path, listeners=f"http://127.0.0.1:{taken_port}")
    output = complaint(icefloe(tmp_path, "node", "--properties", file))
    assert f"cannot listen at http://127.0.0.1:{taken_port}: Address already in use" in output
    assert "choose another address in listeners" in output


def test_an_embedded_port_in_use_is_named(
    icefloe: Icefloe, tmp_path: Path, taken_port: int
) -> None:
    """The part, the port, and the remedy."""
    free = {"--rest-port": "0", "--broker-port": "0"}
    for option, part in (("--rest-port", "REST API"), ("--broker-port", "embedded broker")):
        chosen = {**free, option: str(taken_port)}
        given = [text for pair in chosen.items() for text in pair]
        output = complaint(icefloe(tmp_path, "up", "--state-dir", "state", *given))
        assert f"{part} cannot listen on 127.0.0.1:{taken_port}" in output
        assert f"choose another port with {option}, or end that process" in output


def test_a_state_folder_that_cannot_be_written_is_named(icefloe: Icefloe, tmp_path: Path) -> None:
    """For node, stack and demo; also a file in the place of the folder."""
    (tmp_path / "file").touch()
    file = properties(tmp_path, icefloe__state__dir=str(tmp_path / "file" / "state"))
    for command in (
        ("node", "--properties", file),
        ("up", "--broker-port", "0", "--rest-port", "0", "--state-dir", "file/state"),
        ("demo", "--records", "1", "--state-dir", "file/state"),
    ):
        output = complaint(icefloe(tmp_path, *command))
        assert "file/state" in output
        assert "cannot be written: Not a directory" in output


@pytest.mark.parametrize("command", ["node", "up", "demo"])
def test_a_missing_or_old_java_is_named(icefloe: Icefloe, tmp_path: Path, command: str) -> None:
    """The error has the path searched, the version found and what to install."""
    advice = "install a Java 17 or newer runtime and set JAVA_HOME or put it on PATH"
    arguments = {
        "node": ("node", "--properties", properties(tmp_path)),
        "up": ("up", "--state-dir", "state", "--broker-port", "0", "--rest-port", "0"),
        "demo": ("demo", "--state-dir", "state", "--records", "1"),
    }[command]
    old = old_java(tmp_path)
    output = complaint(icefloe(tmp_path, *arguments, JAVA_HOME=str(old)))
    assert f"{old}/bin/java is Java 11: {advice}" in output
    output = complaint(icefloe(tmp_path, *arguments, JAVA_HOME="", PATH=str(tmp_path)))
    assert f"Java was not found: {advice}" in output
    if command != "node":  # all commands find Java with the same function
        return
    output = complaint(icefloe(tmp_path, *arguments, JAVA_HOME="", PATH=f"{old}/bin:/usr/bin"))
    assert f"{old}/bin/java is Java 11: {advice}" in output
    output = complaint(icefloe(tmp_path, *arguments, JAVA_HOME="/nonexistent"))
    assert f"JAVA_HOME is /nonexistent, but it contains no bin/java: {advice}" in output


def test_a_node_without_a_broker_names_its_address(icefloe: Icefloe, tmp_path: Path) -> None:
    """It answers 503, keeps its folder, and ends on SIGTERM."""
    port = free_port()
    file = properties(tmp_path, listeners=f"http://127.0.0.1:{port}", icefloe__drain__grace__ms="1")
    where = "it waits for the broker at 127.0.0.1:1 (bootstrap.servers)"
    log = tmp_path / "node.log"
    with log.open("w") as target:
        node = subprocess.Popen(
            [ICEFLOE, "node", "--properties", file], cwd=tmp_path, stdout=target, stderr=target
        )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        answer = None
        while answer is None or where not in answer.text:
            assert node.poll() is None, log.read_text()
            assert time.monotonic() < deadline, answer and answer.text
            time.sleep(0.2)
            try:
                answer = httpx.get(
                    f"http://127.0.0.1:{port}/health", timeout=60, verify=public_trust()
                )
            except httpx.TransportError:
                continue
            assert answer.status_code == 503
        output = complaint(icefloe(tmp_path, "node", "--properties", properties(tmp_path)))
        assert "a node is running on" in output
        assert "state already; end it or use another folder" in output
        node.send_signal(signal.SIGTERM)
        assert node.wait(TIMEOUT_S) == 0
    finally:
        node.kill()
        node.wait()
