"""The page of private members of other packages lists what the code uses, and nothing else."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement

from tests.support.sources import modules, nodes

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "private-members.md"
PACKAGES = ("connect", "control_schemas", "coordinator", "worker")
USES_MAX = 61  # twice as many until November 2026

# private names that are not of other packages, or are public in spite of their name
OWN = {
    "connect/gateways/catalog/catalog.py": {"_client"},
    "connect/gateways/catalog/metadata_files.py": {"_parts"},
    "worker/decode/json_maps.py": {"_together"},
}
ROW = re.compile(r"^\| `([^`]+)` \| ([\w-]+) \| ([^|]+) \| [^|]{8,} \|$", re.MULTILINE)
PUBLIC = re.compile(r"(os\._exit|.*\._replace|KafkaError\._[A-Z_]+)")


def is_private(name: str) -> bool:
    """Begins with one underscore."""
    return name.startswith("_") and not name.startswith("__")


def used(path: Path) -> Iterator[str]:
    """Private names of other objects than ``self`` in a file, once for each use."""
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value)
            if owner not in {"self", "cls"} and not PUBLIC.fullmatch(f"{owner}.{node.attr}"):
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            top = (node.module or "").partition(".")[0]
            if node.level == 0 and top not in PACKAGES:
                yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.ClassDef):
            yield from overridden(path, node)


def overridden(path: Path, node: ast.ClassDef) -> Iterator[str]:
    """Private methods of a class that a base of another package has as well."""
    methods = [m.name for m in node.body if isinstance(m, ast.FunctionDef) and is_private(m.name)]
    if not methods or not node.bases:
        return
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    kind = getattr(importlib.import_module(name), node.name, None)
    if inspect.isclass(kind):
        others = [b for b in kind.__mro__ if b.__module__.partition(".")[0] not in PACKAGES]
        yield from (m for m in methods if any(m in vars(base) for base in others))


@cache
def uses() -> dict[str, dict[str, int]]:
    """The number of uses of each private member, by its name and the file."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for path in modules(*PACKAGES):
        place = path.relative_to(ROOT).as_posix()
        for member in used(path):
            if member not in OWN.get(place, ()):
                found[member][place] += 1
    return found


def rows() -> list[tuple[str, str, set[str]]]:
    """Member, package and files of each row of the page."""
    return [
        (member, package, set(files.strip("`").split("`, `")))
        for member, package, files in ROW.findall(PAGE.read_text())
    ]


def test_the_page_lists_each_private_member_and_its_files() -> None:
    """A new use needs a row that says what breaks when the member changes."""
    assert {m: files for m, _, files in rows()} == {m: set(f) for m, f in uses().items()}
    assert len(rows()) == len(uses())


def test_the_uses_of_private_members_do_not_grow() -> None:
    """Use a public member, or the function that wraps the private one."""
    assert sum(sum(files.values()) for files in uses().values()) <= USES_MAX


def test_a_package_with_a_private_member_in_use_has_an_upper_bound() -> None:
    """Its next version may not have the member."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    texts = [*project["dependencies"], *(text for extra in extras for text in extra)]
    bounded = {
        requirement.name
        for requirement in map(Requirement, texts)
        if any(part.operator in {"==", "<", "~="} for part in requirement.specifier)
    }
    packages = {package for _, package, _ in rows()}
    assert packages
    assert packages <= bounded
    assert sys.stdlib_module_names.isdisjoint(packages)
