"""A worker's JVM with an archive of its classes; making one takes a minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from connect.jvm.jars import cache_dir

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1500)]

# in a process of its own: there is one JVM of Spark per process
USE = """
import sys
from pathlib import Path
import psutil
from worker.spark.session import open_session
from worker.spark.warm_up import warm_up
folder = Path(sys.argv[1])
log = {"spark.driver.extraJavaOptions": f"-Xlog:class+load=info:file={folder / 'classes.log'}"}
session = open_session(log, folder=folder)
warm_up(session)
(jvm,) = (p for p in psutil.Process().children() if "java" in p.name())
print(session.spark.range(10).count(), *(r.path for r in jvm.memory_maps() if ".jsa" in r.path))
session.close()
"""
READ_MAX = 1_000  # of 17,500; 420 were measured, most of them of a compiler in an old format


def test_a_session_loads_its_classes_from_the_archive(tmp_path: Path) -> None:
    """The JVM maps the archive and reads few classes from jars."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_dir() / "jars")
    environ = {**os.environ, "ICEFLOE_CACHE_DIR": str(cache)}

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[-1]

    archiving = run("-m", "worker.spark.archiving")
    assert Path(archiving).parent == cache / "classes"
    count, *mapped = run("-c", USE, str(tmp_path)).split()
    assert count == "10"
    assert archiving in mapped
    loaded = (tmp_path / "classes.log").read_text().splitlines()
    read = [line for line in loaded if "source: file:" in line or "source: jrt:" in line]
    assert len(read) < READ_MAX
