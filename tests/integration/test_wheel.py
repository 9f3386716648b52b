"""What is installed from the wheel."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
UI = ROOT / "connect" / "node" / "rest" / "ui"


def test_the_status_page_is_in_the_wheel(tmp_path: Path) -> None:
    """Every file of it, byte for byte."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        for file in UI.iterdir():
            assert packed.read(f"connect/node/rest/ui/{file.name}") == file.read_bytes()
