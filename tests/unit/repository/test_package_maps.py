"""Docstrings of packages are maps of their modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.sources import ROOT

PACKAGES = ("control_schemas", "connect", "worker", "coordinator")
MODULES_WITHOUT_MAP_MAX = 24
MAPPED = sorted(
    init
    for package in PACKAGES
    for init in (ROOT / package).rglob("__init__.py")
    if "\n- " in (ast.get_docstring(ast.parse(init.read_text("utf-8"))) or "")
)


@pytest.mark.parametrize("init", MAPPED, ids=lambda init: str(init.parent.relative_to(ROOT)))
def test_a_map_names_modules_that_exist(init: Path) -> None:
    """Each name of a list is a module or folder of the package."""
    docstring = ast.get_docstring(ast.parse(init.read_text("utf-8"))) or ""
    named = re.findall(r"``(\w+)``", docstring.partition("\n- ")[2])
    there = {file.stem for file in init.parent.glob("*.py")}
    there |= {inner.parent.name for inner in init.parent.glob("*/__init__.py")}
    assert named
    assert not set(named) - there


def test_a_large_package_has_a_map() -> None:
    """Transformations need none: each module is a transformation, named as in the reference."""
    missing = [
        str(init.parent.relative_to(ROOT))
        for package in PACKAGES
        for init in (ROOT / package).rglob("__init__.py")
        if len(list(init.parent.glob("*.py"))) > MODULES_WITHOUT_MAP_MAX
        and init not in MAPPED
        and init.parent.name != "transforms"
    ]
    assert not missing
