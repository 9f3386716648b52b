"""What `make setup` prints: its recipes run, with a program that records in place of Python."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]
RECORDING = '#!/bin/sh\necho "RUN $*"\n'


def printed(goal: str, folder: Path) -> list[str]:
    """Lines of a goal, for an environment that is new."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(RECORDING)
    (programs / "python").chmod(0o755)
    (programs / "icefloe").symlink_to("python")
    done = subprocess.run(
        ["make", "-C", ROOT, goal, f"VENV={folder}", "MAKEFLAGS="],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if not line.startswith("make")]


def test_each_step_has_a_line_and_the_last_line_is_the_next_command(tmp_path: Path) -> None:
    """Before each call of pip, with the number of packages."""
    lines = printed("setup", tmp_path / "new")
    pip = [number for number, line in enumerate(lines) if line.startswith("RUN -m pip")]
    assert len(pip) == 2
    assert all(lines[number - 1].startswith("setup: installing ") for number in pip)
    locked = re.findall(
        r"^[\w.-]+==", (ROOT / "requirements" / "dev.lock").read_text(), re.MULTILINE
    )
    assert f" {len(locked)} packages " in lines[pip[0] - 1]
    assert "make demo" in lines[-1]


def test_other_goals_do_not_name_a_next_command(tmp_path: Path) -> None:
    """They install first if they must."""
    lines = printed("demo", tmp_path / "new")
    assert not [line for line in lines if "make demo" in line]
    assert lines[-1].startswith("RUN demo")
