"""A worker's JVM with an archive of its classes; making one takes a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connect.embedded.jars import cache_dir

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1500)]

# in a process of its own: there is one JVM of Spark per process
USE = """
import sys
from pathlib import Path
import psutil
from worker.session import open_session
session = open_session({}, folder=Path(sys.argv[1]))
(jvm,) = (p for p in psutil.Process().children() if "java" in p.name())
print(session.spark.range(10).count(), *(r.path for r in jvm.memory_maps() if ".jsa" in r.path))
session.close()
"""


def test_a_session_maps_the_archive_that_was_made(tmp_path: Path) -> None:
    """The JVM takes it, and Spark works with it."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_dir() / "jars")
    environ = {**os.environ, "ICEFLOE_CACHE_DIR": str(cache)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    made = run("-m", "worker.archiving")
    assert Path(made).parent == cache / "classes"
    count, *mapped = run("-c", USE, str(tmp_path)).split()
    assert count == "10"
    assert made in mapped
