"""What commands print: nothing of a tenant's that a terminal would obey."""

from __future__ import annotations

import ast
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.cli.terminal import echo, plain, table
from tests.support.sources import ROOT, modules, nodes

PRINTING = {"typer.echo", "typer.secho", "click.echo", "console.print"}
OWN_ENTRIES = {
    "connect/cli/terminal.py",
    "connect/embedded/demo.py",  # own figures, on the machine of one user
    "connect/embedded/stack.py",  # the same
}


@pytest.mark.parametrize(
    ("text", "displayed"),
    [
        ("orders", "orders"),
        ("Größe 表 \u00a0", "Größe 表 \u00a0"),
        ("\x1b[2J\x07", "\\u001b[2J\\u0007"),
        ("\x9b31m\x7f", "\\u009b31m\\u007f"),
        ("a\u202eb\u2066\u200f", "a\\u202eb\\u2066\\u200f"),
        ("a\r\nb\tc", "a\\r\nb\tc"),
        ("\U000e0041\ud800\u2028", "\\udb40\\udc41\\ud800\\u2028"),
    ],
)
def test_control_characters_are_escaped(text: str, displayed: str) -> None:
    """Also bidirectional marks, tags and halves of surrogate pairs."""
    assert plain(text) == displayed


@given(st.text())
def test_any_text_is_safe_to_print(text: str) -> None:
    """A cell has no line end either; JSON is unchanged."""
    kinds = {unicodedata.category(char) for char in plain(text, is_cell=True)}
    assert not kinds & {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    assert json.loads(plain(json.dumps(text, ensure_ascii=False))) == text


def test_line_ends_in_a_cell_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Also tabs and markup."""
    table(("a", "b"), [("x\ny", "[red]z\tq")])
    echo("\x1b]0;title\x07", err=True)
    out, err = capsys.readouterr()
    assert out == "x\\ny\t[red]z\\tq\n"
    assert err == "\\u001b]0;title\\u0007\n"


def test_commands_print_through_one_module() -> None:
    """A new command must use it."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules("connect")
        if str(path.relative_to(ROOT)) not in OWN_ENTRIES
        for node in nodes(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING
    ]
    assert found == []
