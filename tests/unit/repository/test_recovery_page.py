"""docs/how-to/recovery.md and the codes of errors that stop something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.sources import ROOT, modules, nodes, tree

PAGE = ROOT / "docs/how-to/recovery.md"
STOPPING = {
    "CommitConflict",
    "CommitError",
    "CommitRefused",
    "CommitStateUnknown",
    "ConfigError",
    "DataLost",
    "Fenced",
    "IcefloeError",
    "InvariantViolation",
    "LayoutSuperseded",
    "RetriableError",
    "_FloorMoved",
    "mapped",
}
ASIDE = (  # errors of the command line end a command, not a connector
    "connect/cli",
    "connect/embedded",
    "connect/jvm",
    "connect/node/herder/child_processes/child_requests.py",
    "connect/node/rest",
    "connect/operations/connector_clients.py",
    "connect/operations/catalog_report.py",
    "connect/operations/connector_operations.py",
    "connect/operations/dead_letter_replay.py",
    "connect/operations/dead_letter_topic.py",
    "connect/operations/migration",
    "connect/operations/report",
    "connect/processes/child_process.py",
    "connect/protocol/offset_plan.py",
)


def _sources() -> Iterator[tuple[str, Path]]:
    for file in modules("connect", "worker", "coordinator"):
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(ASIDE):
            yield name, file


@cache
def _codes() -> dict[str, str]:
    """Return each code with a file that raises it."""
    found: dict[str, str] = {}
    constants: dict[str, str] = {}
    for _, file in _sources():
        for statement in tree(file).body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=known)], value=ast.Constant(value=str(text))):
                    constants[known] = text
    for name, file in _sources():
        for node in nodes(file):
            for code in _codes_in(node, constants):
                found.setdefault(code, name)
    return found


def _codes_in(node: ast.AST, constants: dict[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Call):
        called = getattr(node.func, "id", getattr(node.func, "attr", ""))
        for keyword in node.keywords if called in STOPPING else ():
            if keyword.arg == "code":
                yield from _texts(keyword.value, constants)
    elif isinstance(node, ast.ClassDef) and node.name in STOPPING:
        for part in node.body:
            target = part.targets[0] if isinstance(part, ast.Assign) else None
            target = part.target if isinstance(part, ast.AnnAssign) else target
            if getattr(target, "id", "") == "default_code":
                yield from _texts(part, constants)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if getattr(target, "id", "").startswith("_CODE_BY"):
            yield from _texts(node, constants)


def _texts(node: ast.AST, constants: dict[str, str]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.Name) and part.id in constants:
            yield constants[part.id]


def _page() -> set[str]:
    """Return the codes in the first column of the tables and in the list of kinds."""
    text = PAGE.read_text("utf-8")
    rows = "\n".join(re.findall(r"^\| *(`[^|]*)\|", text, re.MULTILINE))
    kinds = re.search(r"The kinds of errors \(([^)]*)\)", text)
    assert kinds is not None
    return set(re.findall(r"`([a-z_]+)`", rows + kinds[1]))


def test_every_code_that_stops_something_is_on_the_page() -> None:
    """The page says what each code means and what to do."""
    missing = {code: file for code, file in _codes().items() if code not in _page()}
    assert not missing


def test_every_code_on_the_page_is_in_the_code() -> None:
    """The page names no code that cannot happen."""
    assert _page() <= set(_codes())


def test_links_inside_the_page_lead_somewhere() -> None:
    """Each section that a row links to exists."""
    text = PAGE.read_text("utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\(#([^)]*)\)", text)) <= anchors
