"""A built wheel in a virtual environment of its own, without a network."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

TIMEOUT_S = 300


class Environment:
    """A virtual environment with the built wheel, and packages of this one without a network.

    Args:
        folder: of the environment.
        wheel: installed by pip, without dependencies.
        packages: folder of the other packages; those of this environment if None.
    """

    def __init__(self, folder: Path, wheel: Path, packages: Path | None = None) -> None:
        self.python = folder / "bin" / "python"
        self.program = folder / "bin" / "icefloe"
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        # only the environment with all packages runs a node, which imports most of the modules
        options = ("--no-deps", "--no-index", "--quiet", *(["--no-compile"] if packages else []))
        run(*pip(self.python), "install", *options, wheel)
        (site,) = folder.glob("lib/python3*/site-packages")
        # a path in this file comes after the environment's own packages, and its .pth files are
        # not read: the editable installation of this repository is not seen
        others = packages or Path(str(distribution("typer").locate_file("")))
        (site / "packages.pth").write_text(f"{others}\n")


def build(source: Path, folder: Path, target: str) -> None:
    """Build the distribution of a source tree into a folder; ``target`` is sdist or wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", target]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=TIMEOUT_S)


def run(*command: str | Path, status: int = 0) -> str:
    """Run a program outside of the repository; return its output."""
    done = subprocess.run(
        [*map(str, command)],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def pip(python: Path) -> tuple[str, ...]:
    """Return the command of pip for another environment."""
    return (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check")
