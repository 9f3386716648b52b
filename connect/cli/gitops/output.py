"""Output formats of commands, results of maintenance as text, and the confirmation of changes.

Rules of this file:
- Every command that prints data has the option ``-o`` with the same four formats. A test holds
  this. The exception is ``report``, which prints rows of any query.
- Data goes to standard output; questions, warnings and progress go to standard error.
- A change that needs confirmation requires ``--yes``, or a yes on a terminal. Otherwise the
  command changes nothing and ends with status 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final

import typer
import yaml

from connect.cli.terminal import echo
from connect.errors import ExitStatus

FORMS: Final = ("table", "json", "yaml", "name")
_OLD_FORMS: Final = {"text": "table"}


def _form(value: str) -> str:
    """Parse a value of ``-o``; a deprecated name is accepted with a warning."""
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
        help="Output format: table, json, yaml, or name for names only.",
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Apply the change; without it, show the plan.")
]


def emit(output: str, data: Any, *, names: Iterable[str], as_table: Callable[[], None]) -> None:
    """Print data in the format of ``-o``.

    Args:
        output: one of ``FORMS``.
        data: JSON value, for ``json`` and ``yaml``.
        names: for ``name``, printed one per line.
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
        plain = json.loads(json.dumps(data))  # YAML would write tuples and enum members as tags
        dump = yaml.safe_dump_all if isinstance(plain, list) else yaml.safe_dump
        echo(dump(plain, sort_keys=False, allow_unicode=True), nl=False)


def confirm(question: str, *, yes: bool) -> None:
    """Return if the change is confirmed; the caller has printed the plan.

    Args:
        question: asked on a terminal.
        yes: whether ``--yes`` was given.

    Raises:
        Exit: status 1 if the answer is no; 2 if there is no terminal.
    """
    if yes:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        if typer.confirm(question, err=True):
            return
        echo("nothing was changed", err=True)
        raise typer.Exit(ExitStatus.NO)
    echo("nothing was changed; run the command with --yes to apply the change", err=True)
    raise typer.Exit(ExitStatus.USAGE)


_NUMBERS: Final = {
    "rewritten_files": "{} data files rewritten",
    "rewritten_bytes": "{} bytes",
    "added_files": "into {} files",
    "removed_delete_files": "{} delete files removed",
    "rewritten_manifests": "{} manifests rewritten",
    "orphan_files": "{} orphan files deleted",
    "failed_files": "{} files not rewritten",
    "lost_commits": "{} commits lost against others",
}


def result_text(result: Mapping[str, Any]) -> str:
    """Return what a work has done, or why it failed."""
    if result["state"] == "FAILED":
        return f"{result['code']}: {result['message']}"
    return ", ".join(text.format(result[key]) for key, text in _NUMBERS.items() if result.get(key))
