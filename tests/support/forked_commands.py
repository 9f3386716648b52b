"""``icefloe`` in processes that are forked after its imports, which take most of a command's time.

``ForkedCommands`` starts one process that has imported all commands, and makes a folder for
``PATH``. The program ``icefloe`` in that folder lets the process fork. The child has the caller's
arguments, folder, environment and standard streams, and runs ``connect.cli.main.main``.

Rules of this file:
- The caller's program ends with the status of the child.
- A child whose caller was killed ends when ``close`` ends the server's process group.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

# runs without the site module: it starts in a hundredth of a second
_PROGRAM = """#!{python} -SE
import array, json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
streams = array.array("i", [0, 1, 2])
what = (sys.argv[1:], os.getcwd(), dict(os.environ))
data = json.dumps(what).encode()
server.sendmsg([len(data).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
server.sendall(data)
status = server.recv(1)
sys.exit(status[0] if status else 1)
"""
# imported by commands when they run
MODULES = (
    "connect.embedded.demo",
    "connect.embedded.stack",
    "connect.node.node_start",
    "connect.node.standalone_connectors",
    "typer.rich_utils",
)
START_TIMEOUT_S = 120


class ForkedCommands:
    """The server of commands.

    Args:
        folder: for the program and the socket.
        environ: of the server; modules may read it when they are imported.

    Attributes:
        path: the folder with the program, for ``PATH``.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.path = folder / "forked"
        self.path.mkdir()
        address = str(self.path / "socket")
        program = self.path / "icefloe"
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(address)
        listening.listen()
        with listening:
            self._server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(listening.fileno())],
                pass_fds=[listening.fileno()],
                env={**os.environ, **(environ or {})},
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )

    def close(self) -> None:
        """End the server, and commands whose caller has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self._server.pid, signal.SIGKILL)
        self._server.wait()


def _serve(listening: socket.socket) -> None:
    """Fork a process for each command; it forks the command, and sends its status."""
    from connect.cli import main

    main.add_commands((), is_every=True)
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()  # a collection in a child would copy all pages
    while True:
        caller, _ = listening.accept()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            listening.close()
            _answer(caller)
        caller.close()


def _answer(caller: socket.socket) -> None:
    size, streams, _, _ = socket.recv_fds(caller, 8, 3)
    data = b""
    while len(data) < int.from_bytes(size, "big"):
        data += caller.recv(65_536)
    child = os.fork()
    if child == 0:
        caller.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        _run(*json.loads(data))
    for stream in streams:
        os.close(stream)
    _, status = os.waitpid(child, 0)
    with suppress(BrokenPipeError):
        caller.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))
    os._exit(0)


def _run(arguments: list[str], folder: str, environ: Mapping[str, str]) -> None:
    from connect.cli import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["icefloe", *arguments]
    sys.modules["__main__"].__package__ = None  # else the usage names this module
    status: object = 0
    try:
        main.main()
    except SystemExit as ended:
        status = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
