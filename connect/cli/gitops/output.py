"""What every command shares: the form of its output, and the confirmation of a change.

Rules of this file:
- One option ``-o``, with the same four forms, on every command that prints data (held by a test).
- Data goes to standard output; questions, warnings and progress go to standard error.
- A change that needs a confirmation happens after ``--yes``, or after a yes on a terminal. Without
  either the command changes nothing and ends with status 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Final

import typer
import yaml

from connect.cli.terminal import echo
from connect.errors import ExitStatus

FORMS: Final = ("table", "json", "yaml", "name")
_OLD_FORMS: Final = {"text": "table"}


def _form(value: str) -> str:
    """A value of ``-o``; an old spelling is accepted with a warning."""
    if value in _OLD_FORMS:
        echo(f"warning: -o {value} is deprecated, use -o {_OLD_FORMS[value]}", err=True)
        return _OLD_FORMS[value]
    if value not in FORMS:
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(FORMS)}")
    return value


Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        parser=_form,
        metavar=f"[{'|'.join(FORMS)}]",
        help="table for people; json and yaml for programs; name for names alone.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Change it; without this option: show the plan.")
]


def emit(output: str, data: Any, *, names: Iterable[str], as_table: Callable[[], None]) -> None:
    """Print data in the form that ``-o`` names.

    Args:
        output: one of ``FORMS``.
        data: JSON value, for ``json`` and ``yaml``.
        names: for ``name``, one on each line.
        as_table: prints the table.
    """
    if output == "table":
        as_table()
    elif output == "name":
        for name in names:
            echo(name)
    elif output == "json":
        echo(json.dumps(data, ensure_ascii=False, indent=2))
    else:
        plain = json.loads(json.dumps(data))  # YAML would write tuples and numbers of enums as tags
        dump = yaml.safe_dump_all if isinstance(plain, list) else yaml.safe_dump
        echo(dump(plain, sort_keys=False, allow_unicode=True), nl=False)


def confirm(question: str, *, yes: bool) -> None:
    """Return when the change is confirmed; the plan has been printed before.

    Args:
        question: what would be done, for a terminal.
        yes: whether ``--yes`` was given.

    Raises:
        Exit: 1 when the answer is no; 2 when there is no terminal to ask.
    """
    if yes:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        if typer.confirm(question, err=True):
            return
        echo("nothing was changed", err=True)
        raise typer.Exit(ExitStatus.NO)
    echo("nothing was changed; repeat the command with --yes to do it", err=True)
    raise typer.Exit(ExitStatus.USAGE)
