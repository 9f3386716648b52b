"""What the commands of the documentation leave on the disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.support.sources import ROOT


def test_git_ignores_the_folders_of_the_tutorials() -> None:
    """Each tutorial begins in a folder of its own in the checkout."""
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    pages = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    for page in pages:
        made = re.findall(r"^\$ mkdir (\S+) && cd", page.read_text(), re.MULTILINE)
        assert made, page
        assert {f"/{name}/" for name in made} <= {*ignored}, page


def test_make_clean_removes_class_archives_and_keeps_jars(tmp_path: Path) -> None:
    """Wherever the cache is; `make setup` writes the archives again."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for variable, cache in (
        ("ICEFLOE_CACHE_DIR", tmp_path / "own"),
        ("XDG_CACHE_HOME", tmp_path / "icefloe"),
        ("HOME", tmp_path / ".cache" / "icefloe"),
    ):
        for name in ("classes", "jars"):
            (cache / name).mkdir(parents=True)
        value = cache if variable == "ICEFLOE_CACHE_DIR" else tmp_path
        caches = {"ICEFLOE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"}
        environ = {k: v for k, v in os.environ.items() if k not in caches}
        environ |= {"HOME": str(tmp_path / "home"), variable: str(value)}
        subprocess.run(["make", "clean"], cwd=tmp_path, env=environ, check=True, timeout=60)
        assert [each.name for each in cache.iterdir()] == ["jars"], variable
