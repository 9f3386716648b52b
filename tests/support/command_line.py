"""``icefloe`` in this process: a process of its own takes two seconds to load what it needs."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, NamedTuple

from typer.main import get_command
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


@cache
def _command(name: str) -> Any:
    """The program with the modules of one command; to build it takes longer than most commands."""
    main.add_commands([name])
    return get_command(main.app)


def icefloe(*arguments: str) -> CommandResult:
    """Run a command; its error becomes a status and a line, as in ``connect.cli.main.main``.

    Raises:
        Exception: a bug, as the command raised it.
    """
    command, failure, status = _command(arguments[0] if arguments else ""), "", 0
    with CliRunner().isolation() as (stdout, stderr, _):
        try:
            command.main(args=arguments, prog_name="icefloe")
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except IcefloeError as error:
            failure = f"error: {plain(str(error))}\n"
            status = error.exit_status
        sys.stdout.flush()
        sys.stderr.flush()
        printed = [each.getvalue().decode().replace("\r\n", "\n") for each in (stdout, stderr)]
    return CommandResult(status, printed[0], printed[1] + failure)
