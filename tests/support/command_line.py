"""``icefloe`` in this process: a process of its own takes two seconds to load what it needs."""

from __future__ import annotations

from typing import NamedTuple

from typer.testing import CliRunner

from connect.cli import main
from connect.cli.terminal import plain
from connect.errors import IcefloeError


class CommandResult(NamedTuple):
    """What a command came to: its exit status, and what it printed."""

    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams."""
        return self.stdout + self.stderr


def icefloe(*arguments: str) -> CommandResult:
    """Run a command; its error becomes a status and a line, as in ``connect.cli.main.main``.

    Raises:
        Exception: a bug, as the command raised it.
    """
    main.add_commands([*arguments])
    done = CliRunner().invoke(main.app, arguments)
    stderr = done.stderr
    status = done.exit_code
    if isinstance(done.exception, IcefloeError):
        stderr += f"error: {plain(str(done.exception))}\n"
        status = done.exception.exit_status
    elif done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return CommandResult(status, done.stdout, stderr)
