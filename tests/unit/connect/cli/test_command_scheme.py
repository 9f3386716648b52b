"""What every command keeps: one scheme of exit statuses, one ``-o``, one ``--yes``."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

from connect.cli import main
from connect.cli.gitops import connectors
from connect.cli.gitops.output import FORMS
from connect.errors import ExitStatus, RetriableError
from tests.support.command_line import icefloe
from tests.support.sources import ROOT, modules, nodes

CLOSED = "http://127.0.0.1:1"
PRINTS_NO_DATA = {
    "node": "runs until it is stopped",
    "standalone": "runs until its connectors have ended",
    "ingest": "the same",
    "up": "the same",
    "demo": "the same",
    "datagen": "produces records and prints their number",
    "version": "prints only the version",
    "logs": "prints log lines as they are in the files",
    "user password": "prints an entry of the users file",
    "user token": "the same",
}
CONFIRMED = {
    "apply",
    "offsets alter",
    "offsets reset",
    "offsets set",
    "control rebase",
    "control vtts reset",
    "delete",
    "dlq replay",
    "rewind",
    "tables skip",
}
OWN_FORMS = {"report": ("table", "csv", "json")}
"""Forms of commands that print rows of no known form."""
ASKS_NO_NODE = {*PRINTS_NO_DATA, "control decode", "report"}
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "get": (),
    "list": (),
    "describe": ("c",),
    "status": (),
    "lag": (),
    "patch": ("c", "tasks.max=1"),
    "delete": ("c", "--yes"),
    "pause": ("c",),
    "resume": ("c",),
    "stop": ("c",),
    "restart": ("c",),
    "audit": ("c",),
    "dlq list": ("c",),
    "dlq show": ("c", "0:1"),
    "dlq replay": ("c",),
    "migrate": ("--check", "-f", "connector.json"),
    "catalog check": ("-f", "connector.json"),
    "preview": ("-f", "connector.json"),
    "validate": ("-f", "connector.json"),
    "diff": ("-f", "connector.json"),
    "apply": ("-f", "connector.json"),
    "cluster": (),
    "plugins": (),
    "loggers": (),
    "rewind": ("c", "--to-offsets", "t:0:7"),
    "control rebase": ("c",),
    "control vtts reset": ("c", "--reason", "r"),
    "maintenance status": ("c",),
    "maintenance run": ("c",),
    "maintenance stop": ("c",),
    "tables list": ("c",),
    "tables retry": ("c", "db.t"),
    "tables skip": ("c", "db.t"),
    "tables orphan-age": ("c",),
    "offsets show": ("c",),
    "offsets alter": ("c", "-f", "offsets.json"),
    "offsets reset": ("c",),
    "offsets set": ("c", "--to-latest"),
}


def commands() -> dict[str, Any]:
    """Every command by its full name, as typer has built it."""
    main.add_commands((), is_every=True)
    commands: dict[str, Any] = {}
    left = [("", typer.main.get_command(main.app))]
    while left:
        name, command = left.pop()
        children = getattr(command, "commands", {})
        left += [(f"{name} {child}".strip(), made) for child, made in children.items()]
        if not children:
            commands[name] = command
    return commands


def option(command: Any, name: str) -> Any:
    """An option of a command; None where it has none."""
    return next((one for one in command.params if name in one.opts), None)


COMMANDS = commands()
ASKING = sorted(set(COMMANDS) - ASKS_NO_NODE)


class FixedAnswerServer(ThreadingHTTPServer):
    """A server that gives every request the same answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.content = 200, b""

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FixedAnswerServer

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - names of http.server

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def answers() -> Iterator[FixedAnswerServer]:
    """The server, running."""
    server = FixedAnswerServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the commands name; no settings of the machine's user."""
    config = {"connector.class": "IcebergSink", "topics": "t", "iceberg.tables": "db.t"}
    (tmp_path / "connector.json").write_text(json.dumps({"name": "c", "config": config}))
    (tmp_path / "offsets.json").write_text('{"offsets": []}')
    monkeypatch.chdir(tmp_path)
    for name in ("ICEFLOE_SERVER", "ICEFLOE_TOKEN", "ICEFLOE_USER", "ICEFLOE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def test_every_command_is_in_these_tests() -> None:
    """A new command must follow the scheme."""
    assert set(ARGUMENTS) == set(ASKING)
    assert set(COMMANDS) >= ASKS_NO_NODE | CONFIRMED


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_wrong_usage_is_status_2(name: str) -> None:
    """An unknown option, for each command."""
    done = icefloe(*name.split(), "--no-such-option")
    assert (done.status, "No such option" in done.stderr) == (ExitStatus.USAGE, True)
    assert not done.stdout


@pytest.mark.parametrize("name", ASKING)
def test_no_node_is_status_3(name: str) -> None:
    """Standard error has the address and the option that changes it."""
    done = icefloe(*name.split(), *ARGUMENTS[name], "--server", CLOSED)
    assert done.status == ExitStatus.NOT_ASKED
    assert f"error: no node answers at {CLOSED} (--server" in done.stderr
    assert not done.stdout or name in {"delete", "pause", "resume", "stop", "restart"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, ExitStatus.NO),
        (401, ExitStatus.NOT_ASKED),
        (403, ExitStatus.NO),
        (404, ExitStatus.NO),
        (409, ExitStatus.NO),
        (429, ExitStatus.NOT_ASKED),
        (500, ExitStatus.NOT_ASKED),
        (503, ExitStatus.NOT_ASKED),
    ],
)
def test_a_refusal_is_status_1_and_a_failure_is_status_3(
    answers: FixedAnswerServer, status: int, expected: ExitStatus
) -> None:
    """Each command, for each HTTP error status; the message of the node is printed."""
    message = f"because of {status}"
    answers.status = status
    answers.content = json.dumps({"error_code": status, "message": message}).encode()
    validating = {"diff": ExitStatus.USAGE, "apply": ExitStatus.USAGE, "validate": ExitStatus.NO}
    checking = dict.fromkeys(("migrate", "catalog check", "preview"), ExitStatus.USAGE)
    for name in ASKING:
        done = icefloe(*name.split(), *ARGUMENTS[name], "--server", answers.url)
        wanted = validating.get(name, expected) if status in {400, 404} else expected
        wanted = checking.get(name, wanted) if status == 400 else wanted
        assert (name, done.status, message in done.stderr) == (name, wanted, True)


def test_an_answer_of_another_server_is_status_3(answers: FixedAnswerServer) -> None:
    """For example an HTML page at the address."""
    answers.status, answers.content = 200, b"<html>"
    done = icefloe("get", "--server", answers.url)
    assert done.status == ExitStatus.NOT_ASKED
    assert "it is not a node, check --server" in done.stderr


def test_a_missing_file_is_status_2() -> None:
    """For each command that reads connectors or offsets from a file."""
    for name, command in COMMANDS.items():
        if option(command, "--file") is None:
            continue
        given = [a for a in ARGUMENTS.get(name, ()) if not a.endswith(".json") and a != "-f"]
        if name == "patch":
            given = ["c"]
        done = icefloe(*name.split(), *given, "-f", "gone.json")
        assert (name, done.status) == (name, ExitStatus.USAGE)
        assert "gone.json" in done.stderr


def test_options_of_a_direct_command_need_its_switch() -> None:
    """The node would ignore a broker or properties without ``--file`` or ``--direct``."""
    for name, command in COMMANDS.items():
        if option(command, "--properties") is None or name in ASKS_NO_NODE:
            continue
        done = icefloe(*name.split(), *ARGUMENTS[name], "--properties", "node.properties")
        switch = "--direct" if option(command, "--direct") else "--file"
        assert (name, done.status) == (name, ExitStatus.USAGE)
        assert f"need {switch}" in done.stderr


def test_every_command_that_prints_data_has_the_same_output_option() -> None:
    """Equal forms, defaults, and short and long option names."""
    for name, command in COMMANDS.items():
        found = option(command, "--output")
        if name in PRINTS_NO_DATA:
            assert found is None, name
            continue
        assert found is not None, name
        assert (found.opts, found.default) == (["--output", "-o"], "table"), name
        forms = OWN_FORMS.get(name, FORMS)
        assert found.metavar == f"[{'|'.join(forms)}]", name


def test_old_names_of_forms_are_accepted_with_a_warning(answers: FixedAnswerServer) -> None:
    """``-o text`` is ``-o table``; other names are wrong usage."""
    answers.status, answers.content = 200, b"{}"
    done = icefloe("get", "-o", "text", "--server", answers.url)
    assert done == (0, "", "warning: -o text is deprecated, use -o table\n")
    assert icefloe("get", "-o", "xml", "--server", answers.url).status == ExitStatus.USAGE


def test_changes_have_the_same_confirmation() -> None:
    """Only commands that delete connectors, change offsets or give up rows have ``--yes``."""
    with_yes = {name for name, command in COMMANDS.items() if option(command, "--yes")}
    assert with_yes == CONFIRMED


def test_delete_asks_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A no ends it with status 1, before a node is asked; a yes asks the node."""
    for answer, error in ((b"n\n", typer.Exit), (b"y\n", RetriableError)):
        controller, terminal = os.openpty()
        os.write(controller, answer)
        with (
            os.fdopen(os.dup(terminal)) as stdin,
            os.fdopen(terminal, "w") as stderr,
            monkeypatch.context() as patched,
        ):
            patched.setattr(sys, "stdin", stdin)
            patched.setattr(sys, "stderr", stderr)
            with pytest.raises(error) as ended:
                connectors.delete(["c"], server=CLOSED)
            stderr.flush()
            assert b"delete 1 connector(s)? [y/N]" in os.read(controller, 4_096)
        os.close(controller)
        assert getattr(ended.value, "exit_code", ExitStatus.NO) == ExitStatus.NO


def test_every_command_that_asks_a_node_has_the_same_server_option() -> None:
    """``--server``, or ``ICEFLOE_SERVER``."""
    for name in ASKING:
        found = option(COMMANDS[name], "--server")
        assert found is not None, name
        assert found.envvar == "ICEFLOE_SERVER", name


def test_no_option_takes_a_secret() -> None:
    """Passwords and tokens come from the environment, files and prompts."""
    secrets = ("password", "token", "secret", "credential")
    found = [
        f"{name} {spelling}"
        for name, command in COMMANDS.items()
        for one in command.params
        for spelling in one.opts
        if any(secret in spelling for secret in secrets)
    ]
    assert found == []


def test_exit_statuses_are_defined_once() -> None:
    """Statuses are named in one place."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules("connect")
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"typer.Exit", "sys.exit"}
        and any(isinstance(argument, ast.Constant) for argument in node.args)
    ]
    assert found == []


def test_a_bug_is_status_3() -> None:
    """The stack trace is printed; Python's own status 1 would mean a refusal."""
    code = "import connect.cli.main as cli; cli.app.command('bug')(lambda: 1 // 0); cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "bug"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ExitStatus.NOT_ASKED
    assert "ZeroDivisionError" in done.stderr


def test_a_secret_is_refused_as_an_argument() -> None:
    """``patch`` accepts references and files; the refusal does not repeat the value."""
    for pair in (
        "iceberg.catalog.credential=canary-5d",
        "iceberg.catalog.uri=http://user:canary-5d@host",
    ):
        done = icefloe("patch", "c", pair, "--server", CLOSED)
        assert done.status == ExitStatus.USAGE
        assert "canary-5d" not in done.stderr
        assert "use -f" in done.stderr
    reference = "iceberg.catalog.credential=${file:/etc/icefloe/s.properties:k}"
    assert icefloe("patch", "c", reference, "--server", CLOSED).status == ExitStatus.NOT_ASKED


@pytest.mark.parametrize(
    "arguments", [(), ("a",), ("=b",), ("a=1", "a=2"), ("a=1", "--remove", "a")]
)
def test_invalid_arguments_of_patch_are_status_2(arguments: tuple[str, ...]) -> None:
    """Nothing to change, no key and value, a key twice."""
    assert icefloe("patch", "c", *arguments, "--server", CLOSED).status == ExitStatus.USAGE


def test_version_is_also_an_option() -> None:
    """``--version`` prints what ``version`` prints."""
    assert icefloe("--version") == icefloe("version")


def test_log_files_are_printed_from_their_end(tmp_path: Path) -> None:
    """The last lines, of one process or of all; a folder without logs is wrong usage."""
    state = tmp_path / "state"
    state.mkdir()
    lines = [f'{{"event": "{n:05} {"x" * 2000}"}}\n' for n in range(50)]
    (state / "worker.log").write_text("".join(lines))
    (state / "coordinator.log").write_text("")
    where = ("--state-dir", str(state))
    assert icefloe("logs", "worker", "-n", "3", *where).stdout == "".join(lines[-3:])
    assert icefloe("logs", "-n", "0", *where) == (0, "", "")
    assert icefloe("logs", "-n", "99", *where).stdout == "".join(lines)
    done = icefloe("logs", "node", *where)
    assert (done.status, "--state-dir" in done.stderr) == (ExitStatus.USAGE, True)
