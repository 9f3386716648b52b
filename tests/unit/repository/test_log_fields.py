"""The page of log fields lists every field and event of the code, and no other."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.support.sources import ROOT, modules, nodes

PAGE = ROOT / "docs" / "reference" / "log-fields.md"
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "bind"}
OF_EVERY_LINE = {"timestamp", "level", "process", "component", "event", "exception"}


@cache
def logging_calls() -> tuple[ast.Call, ...]:
    """Every call that writes a log event, or binds fields to a logger."""
    return tuple(
        node
        for file in modules("connect", "coordinator", "worker")
        for node in nodes(file)
        if isinstance(node, ast.Call) and is_logging(node.func)
    )


def is_logging(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute):
        return isinstance(function, ast.Name) and function.id == "write"  # one of two levels
    if function.attr == "bind_contextvars":
        return True
    if function.attr not in METHODS:
        return False
    owner = ast.unparse(function.value)
    return owner.split(".")[-1] in {"log", "_log"} or owner.startswith("logger(")


def fields_of_the_code() -> set[str]:
    """Names of the keyword arguments of every logging call."""
    return {keyword.arg for call in logging_calls() for keyword in call.keywords if keyword.arg}


def events_of_the_code() -> set[str]:
    """Constant texts of every logging call."""
    first = [call.args[0] for call in logging_calls() if call.args]
    return {str(each.value) for each in first if isinstance(each, ast.Constant)}


def section(title: str) -> str:
    return PAGE.read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_field_is_documented_and_no_other() -> None:
    """Both directions; the page is in order, so a field is found."""
    listed = re.findall(r"^\| `(\w+)` \|", section("All other fields"), re.MULTILINE)
    assert listed == sorted(listed)
    assert set(listed) == fields_of_the_code()
    assert len(listed) > 50


def test_fields_of_every_line_are_those_of_the_logger() -> None:
    """The first table has the fields that the logger adds itself."""
    listed = re.findall(r"^\| `(\w+)` \|", section("Fields of every line"), re.MULTILINE)
    assert set(listed) == OF_EVERY_LINE


def test_documented_events_and_their_fields_exist() -> None:
    """Each event is a text of the code, each of its fields one of the page."""
    rows = re.findall(
        r"^\| `([^`]+)` \| [\w, ]+ \|(.*)\|$", section("Events to follow a connector"), re.MULTILINE
    )
    assert len(rows) >= 10
    known, fields = events_of_the_code(), fields_of_the_code()
    for event, listed in rows:
        assert event in known
        assert set(re.findall(r"`(\w+)`", listed)) <= fields, event
