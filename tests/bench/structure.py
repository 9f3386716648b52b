"""Prints the figures of ``docs/evidence/structure.md``: ``python -m tests.bench.structure [ROOT]``.

ROOT is a checkout; the present one by default. grimp, the library of import-linter, reads the
imports.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import grimp

PACKAGES = ("control_schemas", "connect", "worker", "coordinator")
SMALL_LINES = 100
ATTRIBUTES_MAX = 12
CLASS_LINES_MAX = 250


def main() -> None:
    """Print units, layers and cycles, then modules, lines and classes."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    sys.path.insert(0, str(root))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    _print_units(graph)
    files = {
        file.relative_to(root): file.read_text().splitlines(keepends=True)
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
    }
    _print_importers(graph, files)
    for package in PACKAGES:
        own = {file: lines for file, lines in files.items() if file.parts[0] == package}
        direct = [f for f in own if len(f.parts) == 2 and f.name != "__init__.py"]
        folders = {f.parts[1] for f in own if len(f.parts) > 2}
        lines = sum(map(len, own.values()))
        print(f"{package}: {len(direct)} modules, {len(folders)} folders, {lines} lines")
    classes = [c for lines in files.values() for c in _classes("".join(lines))]
    wide = sum(len(_attributes(c)) > ATTRIBUTES_MAX for c in classes)
    large = sum((c.end_lineno or 0) - c.lineno >= CLASS_LINES_MAX for c in classes)
    print(
        f"{len(classes)} classes: {wide} with more than {ATTRIBUTES_MAX} attributes, {large} large"
    )


def _unit(module: str) -> str:
    """Return the folder or module directly in ``connect``; for other modules, their package."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "connect" else parts[0]


def _print_units(graph: grimp.ImportGraph) -> None:
    imports: dict[str, set[str]] = defaultdict(set)
    units = sorted({_unit(module) for module in graph.modules} - {"connect"})
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            if _unit(module) != _unit(imported):
                imports[_unit(module)].add(_unit(imported))

    @cache
    def reached(unit: str) -> frozenset[str]:
        found: set[str] = set()
        waiting = [unit]
        while waiting:
            for imported in imports[waiting.pop()] - found:
                found.add(imported)
                waiting.append(imported)
        return frozenset(found)

    @cache
    def layer(unit: str) -> int:
        return 1 + max((layer(imported) for imported in imports[unit]), default=0)

    cycles = {tuple(u for u in units if u in reached(v) and v in reached(u)) for v in units} - {()}
    print(f"{len(units)} units, {sum(map(len, imports.values()))} imports between them")
    print(f"layers: {'none, there are cycles' if cycles else max(map(layer, units))}")
    for cycle in sorted(cycles):
        print(f"cycle: {', '.join(cycle)}")


def _print_importers(graph: grimp.ImportGraph, files: dict[Path, list[str]]) -> None:
    importers = {
        file: len(graph.find_modules_that_directly_import(module))
        for file in files
        if (module := ".".join(file.with_suffix("").parts)) in graph.modules
    }
    one = [file for file, count in importers.items() if count == 1]
    small = [file for file in one if len(files[file]) < SMALL_LINES]
    print(f"{len(importers)} modules; one importer: {len(one)}, {len(small)} of them small")


def _classes(text: str) -> list[ast.ClassDef]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]


def _attributes(node: ast.ClassDef) -> set[str]:
    return {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


if __name__ == "__main__":
    main()
