"""Installed packages with entry points, for tests of users' functions."""

from __future__ import annotations

from pathlib import Path

import pytest


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
