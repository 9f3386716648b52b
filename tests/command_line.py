"""``icefloe`` in this process: a process of its own takes two seconds to load what it needs."""

from __future__ import annotations

from typing import NamedTuple

from typer.testing import CliRunner

from connect import cli
from connect.errors import IcefloeError
from connect.terminal import plain


class Said(NamedTuple):
    """What a command came to: its exit status, and what it printed."""

    status: int
    stdout: str
    stderr: str


def icefloe(*arguments: str) -> Said:
    """Run a command; its error becomes status 1 and a line, as ``connect.cli.main`` does it.

    Raises:
        Exception: a bug, as the command raised it.
    """
    cli._add_commands([*arguments])
    done = CliRunner().invoke(cli.app, arguments)
    stderr = done.stderr
    if isinstance(done.exception, IcefloeError):
        stderr += f"error: {plain(str(done.exception))}\n"
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Said(done.exit_code, done.stdout, stderr)
