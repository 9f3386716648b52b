"""The class archive of Spark: its name identifies Java and Spark, and its size."""

from __future__ import annotations

import re
from pathlib import Path

from worker.spark.class_archive import (
    archive_dir,
    archive_options,
    archive_stem,
    find_archive,
    keep,
)


def put(cache: Path, name: str, size: int = 10) -> Path:
    """Write a file to the folder of archives."""
    archive_dir(cache).mkdir(parents=True, exist_ok=True)
    file = archive_dir(cache) / name
    file.write_bytes(b"x" * size)
    return file


def test_setup_and_image_make_an_archive() -> None:
    """A worker never makes one, so it must exist before the first worker starts."""
    makefile, dockerfile = (Path(name).read_text() for name in ("Makefile", "Dockerfile"))
    assert re.search(r"^setup: .*\bclasses\b", makefile, re.MULTILINE)
    assert "-m worker.spark.archiving --missing" in makefile
    assert "\nRUN python -m worker.spark.archiving\n" in dockerfile


def test_without_an_archive_the_jvm_has_no_options_for_it(tmp_path: Path) -> None:
    """An archive for another Java or Spark is not used."""
    assert archive_options(tmp_path) == []
    put(tmp_path, "spark-0000000000000000-10.jsa")
    assert archive_options(tmp_path) == []


def test_a_truncated_archive_is_not_used(tmp_path: Path) -> None:
    """The JVM would crash; the name contains the size."""
    archive = keep(put(tmp_path, "made"), tmp_path)
    assert find_archive(tmp_path) == archive
    assert f"-XX:SharedArchiveFile={archive}" in archive_options(tmp_path)
    archive.write_bytes(b"x" * 9)
    assert archive_options(tmp_path) == []


def test_a_new_archive_replaces_the_old_one(tmp_path: Path) -> None:
    """One per Java and Spark."""
    old = keep(put(tmp_path, "made"), tmp_path)
    new = keep(put(tmp_path, "made", 11), tmp_path)
    assert not old.exists()
    assert find_archive(tmp_path) == new
    assert new.name == f"{archive_stem()}-11.jsa"


def test_an_archive_with_a_space_in_its_path_is_not_used(tmp_path: Path) -> None:
    """Spark splits the options of the JVM at spaces."""
    cache = tmp_path / "a cache"
    keep(put(cache, "made"), cache)
    assert archive_options(cache) == []
