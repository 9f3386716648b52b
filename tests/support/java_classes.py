"""Java sources of the tests, compiled once: the start of a compiler takes seconds of a core.

Rules of this file:
- The classes stay in the folder of the jars, for later runs. The name of a folder has the sources,
  the class path and the Java; a folder appears complete, by one rename.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from connect.jvm.jars import cache_dir
from connect.jvm.java import find_java

TIMEOUT_S = 600
_COMPILER = ("--module", "jdk.compiler/com.sun.tools.javac.Main")
_OPTIONS = ("-nowarn", "-proc:none", "-encoding", "UTF-8")


def compiled(sources: Sequence[Path], class_path: str) -> str:
    """Return a class path with the classes of the sources in front of the given ones."""
    identity = hashlib.sha256(f"{find_java().resolve()}\0{class_path}".encode())
    for source in sources:
        identity.update(source.read_bytes())
    folder = cache_dir() / "classes" / f"{sources[0].stem}-{identity.hexdigest()[:16]}"
    if not folder.exists():
        _compile(sources, class_path, folder)
    return f"{folder}{os.pathsep}{class_path}"


def _compile(sources: Sequence[Path], class_path: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "classes"
        command = [find_java(), "-XX:TieredStopAtLevel=1", *_COMPILER, *_OPTIONS]
        done = subprocess.run(
            [*command, "-d", made, "-cp", class_path, *sources],
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr.decode()
        with contextlib.suppress(OSError):  # another lane was first
            made.rename(folder)
