"""Installed packages with entry points, for tests of users' functions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

from connect.records.converters.custom_converters import GROUP

CONVERTERS_PAGE: Final = Path(__file__).parents[2] / "docs/reference/converters/custom.md"


def distribution(folder: Path, group: str, line: str) -> Path:
    """Write the metadata of a package with an entry point; returns the folder for ``sys.path``."""
    inside = folder / "own-1.dist-info"
    inside.mkdir(parents=True)
    (inside / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    (inside / "entry_points.txt").write_text(f"[{group}]\n{line}\n")
    return folder


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, group: str, line: str) -> None:
    """Install a package with an entry point in this process."""
    monkeypatch.syspath_prepend(distribution(folder, group, line))


def documented_package(folder: Path) -> Path:
    """Write a package with the converters of their page; returns the folder for ``PYTHONPATH``."""
    codes = re.findall(r"```python\n(.*?)```", CONVERTERS_PAGE.read_text("utf-8"), re.DOTALL)
    tables = re.findall(r"```toml\n(.*?)```", CONVERTERS_PAGE.read_text("utf-8"), re.DOTALL)
    points = [tomllib.loads(table)["project"]["entry-points"][GROUP] for table in tables]
    lines = [f"{name} = {value}" for each in points for name, value in each.items()]
    package = folder / "my_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "converters.py").write_text("\n".join(codes))
    return distribution(folder, GROUP, "\n".join(lines))
