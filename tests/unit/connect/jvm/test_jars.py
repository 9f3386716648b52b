"""Jar groups: the lock is obeyed and a complete cache is used as it is."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from connect.errors import ConfigError, RetriableError
from connect.jvm import jars
from connect.jvm.java import find_java


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock file of its own with one jar in the group ``spark-kafka``."""
    lock = tmp_path / "jars.lock"
    digest = hashlib.sha256(b"good").hexdigest()
    lock.write_text(json.dumps({"spark-kafka": {"a-1.jar": digest}}))
    monkeypatch.setattr(jars, "LOCK_FILE", lock)
    monkeypatch.setattr(jars, "read_lock", lambda: json.loads(lock.read_text()))
    return lock


def brings(content: bytes, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the download bring one jar with this content."""

    def retrieve(group: jars.JarGroup, scratch: Path, _cache: Path) -> list[Path]:
        calls.append(group.coordinates[0])
        (scratch / "out").mkdir()
        jar = scratch / "out" / "a-1.jar"
        jar.write_bytes(content)
        return [jar]

    monkeypatch.setattr(jars, "_retrieve", retrieve)


@pytest.mark.usefixtures("locked")
def test_a_complete_group_is_not_resolved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call starts no process."""
    calls: list[str] = []
    brings(b"good", calls, monkeypatch)
    first = jars.resolve("spark-kafka", cache=tmp_path / "cache")
    assert jars.resolve("spark-kafka", cache=tmp_path / "cache") == first
    assert [jar.read_bytes() for jar in first] == [b"good"]
    assert len(calls) == 1


@pytest.mark.usefixtures("locked")
def test_a_missing_jar_is_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with missing jars is completed."""
    calls: list[str] = []
    brings(b"good", calls, monkeypatch)
    (jar,) = jars.resolve("spark-kafka", cache=tmp_path / "cache")
    jar.unlink()
    assert jars.resolve("spark-kafka", cache=tmp_path / "cache")[0].is_file()
    assert len(calls) == 2


@pytest.mark.usefixtures("locked")
def test_a_jar_with_another_checksum_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the jar, which does not reach the cache."""
    brings(b"evil", [], monkeypatch)
    with pytest.raises(ConfigError, match=r"a-1\.jar") as caught:
        jars.resolve("spark-kafka", cache=tmp_path / "cache")
    assert caught.value.code == "jars_mismatch"
    assert not list((tmp_path / "cache").rglob("*.jar"))


@pytest.mark.usefixtures("locked")
def test_a_download_is_announced_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the name of the group; jars that are in the cache cause no line."""
    monkeypatch.setenv("ICEFLOE_CACHE_DIR", str(tmp_path / "cache"))
    calls: list[str] = []
    brings(b"good", calls, monkeypatch)
    lines = []
    for _ in range(2):
        assert jars.main(["resolve", "spark-kafka"]) == 0
        lines.append(capsys.readouterr())
    assert [each.err for each in lines] == ["jars: downloading spark-kafka\n", ""]
    assert {each.out for each in lines} == {"spark-kafka: 1 jars\n"}


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    """It has no entry in the lock file."""
    with pytest.raises(ConfigError) as caught:
        jars.resolve("nothing", cache=tmp_path)
    assert caught.value.code == "jars_unknown"


def test_every_group_is_locked() -> None:
    """The lock file and the list of groups name the same groups."""
    assert set(jars.read_lock()) == set(jars.GROUPS)


def test_artifacts_of_pyspark_are_not_downloaded_again() -> None:
    """Groups that are used with pyspark's jars have none of its artifacts."""
    shipped = {jars._artifact(jar.name) for jar in jars.pyspark_jars_dir().glob("*.jar")}
    for name, group in jars.GROUPS.items():
        if group.without_pyspark_jars:
            assert not {jars._artifact(jar) for jar in jars.read_lock()[name]} & shipped


def test_an_unwritable_cache_folder_is_named(tmp_path: Path) -> None:
    """A folder below a file is a configuration error with the remedy."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="ICEFLOE_CACHE_DIR") as caught:
        jars.resolve("kafka", cache=tmp_path / "file" / "cache")
    assert caught.value.code == "cache_unwritable"


def test_an_unreachable_repository_is_retriable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a mirror has no artifacts, the error has Ivy's output."""
    monkeypatch.setenv("ICEFLOE_MAVEN_REPOSITORY", (tmp_path / "nothing").as_uri())
    with pytest.raises(RetriableError, match="spark-sql-kafka") as caught:
        jars.resolve("spark-kafka", cache=tmp_path / "cache")
    assert caught.value.code == "jars_unavailable"


def java_that_prints(text: str, folder: Path) -> Path:
    """A JAVA_HOME whose java prints this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ('openjdk version "17.0.15" 2025-04-15', True),
        ('openjdk version "25" 2025-09-16', True),
        ('openjdk version "11.0.2" 2019-01-15', False),
        ('java version "1.8.0_432"', False),
    ],
)
def test_java_17_and_newer_are_accepted(text: str, is_good: bool, tmp_path: Path) -> None:
    """Older versions are refused with advice."""
    home = java_that_prints(text, tmp_path / "java")
    if is_good:
        assert find_java({"JAVA_HOME": str(home)}) == home / "bin" / "java"
    else:
        with pytest.raises(ConfigError, match="install a Java 17") as caught:
            find_java({"JAVA_HOME": str(home)})
        assert caught.value.code == "java_too_old"


@pytest.mark.parametrize("environ", [{"JAVA_HOME": "/nowhere"}, {"PATH": "/nowhere"}])
def test_a_missing_java_is_an_error_with_advice(environ: dict[str, str]) -> None:
    """No Java at JAVA_HOME or on PATH: the message says what to do."""
    with pytest.raises(ConfigError, match="install a Java 17") as caught:
        find_java(environ)
    assert caught.value.code == "java_missing"
