"""The parsed Python files of the project, for tests of the code itself: each is parsed once."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


def modules(*packages: str) -> list[Path]:
    """Return the Python files of packages, sorted."""
    return [file for package in packages for file in sorted((ROOT / package).rglob("*.py"))]


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Callers do not change it."""
    with _uncollected():
        return ast.parse(path.read_text("utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file; cached, because walking over them is slow."""
    with _uncollected():
        return tuple(ast.walk(tree(path)))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Exclude what is parsed from garbage collection, which would visit each node many times."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
