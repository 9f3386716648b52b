"""What commands print, safe for a terminal and for programs that read lines; the end of jobs.

Rules of this file:
- Names, causes and messages come from tenants. Control characters, bidirectional marks and other
  invisible characters in them are printed as JSON escapes, so that a terminal obeys none of them.
- A cell of a table has no line end and no tab: each row stays a row.
- Every command prints through this module alone (held by a test).
"""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from connect.errors import IcefloeError

_OBEYED: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LAYOUT: Final = frozenset("\n\t")


def plain(text: str, *, is_cell: bool = False) -> str:
    """A text without what a terminal would obey.

    Args:
        text: any.
        is_cell: escape line ends and tabs, too.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = frozenset() if is_cell else _LAYOUT
    return "".join(
        char if char in kept or unicodedata.category(char) not in _OBEYED else _escaped(char)
        for char in text
    )


def _escaped(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text.

    Args:
        text: any.
        err: to standard error.
        nl: with a line end.
    """
    typer.echo(plain(text), err=err, nl=nl)


def error(text: str) -> None:
    """Print what went wrong, to standard error."""
    typer.secho("error: ", fg="red", err=True, nl=False)
    echo(text, err=True)


def clear() -> bool:
    """Clear the screen; return whether there is one."""
    console = Console()
    if console.is_terminal:
        console.clear()
    return console.is_terminal


def lines(styled: Iterable[tuple[str, str | None]]) -> None:
    """Print lines, each in a style of rich's."""
    console = Console(highlight=False, soft_wrap=True)
    for text, style in styled:
        console.print(Text(plain(text, is_cell=True), style=style or ""))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], styles: dict[str, str] | None = None
) -> None:
    """Print a table; where no terminal is, a line a row with tabs, to be cut and searched.

    Args:
        columns: their heads.
        rows: a cell for each column.
        styles: style of a row that has a cell with this text.
    """
    console = Console(highlight=False)
    safe = [[plain(cell, is_cell=True) for cell in row] for row in rows]
    if not console.is_terminal:
        for cells in safe:
            typer.echo("\t".join(cells))
        return
    rendered = Table(*columns, box=None, pad_edge=False)
    for cells in safe:
        style = next((styles[cell] for cell in cells if cell in styles), None) if styles else None
        rendered.add_row(*map(Text, cells), style=style)
    console.print(rendered)


def run_and_exit(run: Callable[[], int]) -> NoReturn:
    """Run a job, print its error, and end the process with its exit status.

    Args:
        run: returns the exit status, or raises an ``IcefloeError``.
    """
    try:
        status = run()
    except IcefloeError as e:
        error(str(e))
        status = e.exit_status
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a job that still waits for the broker must not delay the exit
