"""Imports of a starting process: no garbage collection meanwhile, as usual afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import gc
from connect.processes.start_modules import start_module
before = gc.get_freeze_count()
try:
    print(start_module("imported").is_collecting)
except ImportError as error:
    print(error)
print(gc.isenabled(), gc.get_freeze_count() > before)
"""
CONTENTS = {
    "import gc; is_collecting = gc.isenabled()": ["False", "True True"],
    "raise ImportError('broken')": ["broken", "True True"],
}


@pytest.mark.parametrize("content", CONTENTS)
def test_collections_wait_for_the_end_of_the_imports(tmp_path: Path, content: str) -> None:
    """They are enabled again, also after an error, and skip what was imported."""
    (tmp_path / "imported.py").write_text(content)
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(tmp_path)!r}){PROGRAM}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == CONTENTS[content]
