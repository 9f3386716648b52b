"""The state of a node in a file: atomic, durable, in the order of the writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from connect.errors import ConfigError, RetriableError
from connect.model.layout import TopicPartition, spread
from connect.state import topic_records as stored
from connect.state.connector_reader import read_connector_file
from connect.state.file_log import FileLog

CONFIG = {"name": "c", "topics": "t"}


def opened(file: Path) -> tuple[FileLog, list[tuple[str, bytes | None]]]:
    seen: list[tuple[str, bytes | None]] = []
    log = FileLog(file, lambda key, value: seen.append((key, value)))
    log.start()
    return log, seen


def test_the_next_process_reads_what_was_written(tmp_path: Path) -> None:
    """The newest value of each key, in order of the last writes."""
    log, seen = opened(tmp_path / "s")
    log.acquire()
    log.write([("a", b"1"), ("b", "\u2028\u00e9".encode())])
    log.write([("a", b"2"), ("gone", b"x")])
    log.write([("gone", None)])
    assert seen[-1] == ("gone", None)
    assert log.position == 5
    again, found = opened(tmp_path / "s")
    assert found == [("b", "\u2028\u00e9".encode()), ("a", b"2")]
    assert again.await_position(2, 0)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600


def test_a_task_reads_the_layout_from_the_file(tmp_path: Path) -> None:
    """Task records come before the commit record, as in the config topic."""
    log, _ = opened(tmp_path / "s")
    layout = spread("c", 3, [TopicPartition("t", 0)], tasks=1)
    for records in (
        stored.config_records("c", CONFIG),
        stored.layout_records(layout, CONFIG),
        [stored.ready_record(layout, 1)],
    ):
        log.write([(key, stored.encode(value)) for key, value in records])
    found = read_connector_file(tmp_path / "s", "c")
    assert found.layout == layout
    assert found.is_ready
    assert read_connector_file(tmp_path / "none", "c").layout is None


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The disk is full: file and memory are unchanged, and the next write succeeds."""
    log, seen = opened(tmp_path / "s")
    log.write([("a", b"1")])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(*((os, "fsync", fail) if failing == "fsync" else (Path, "replace", fail)))
        with pytest.raises(RetriableError, match="No space left"):
            log.write([("a", b"2")])
    assert seen == [("a", b"1")]
    assert opened(tmp_path / "s")[1] == [("a", b"1")]
    log.write([("a", b"3")])
    assert opened(tmp_path / "s")[1] == [("a", b"3")]


@pytest.mark.parametrize(
    "content",
    ["", "not json\n", '{"format": "icefloe-state", "version": 2}\n', '{"version": 1}\n[1]'],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    """The message has the file and the remedy; nothing is overwritten."""
    file = tmp_path / "s"
    file.write_text(content)
    with pytest.raises(ConfigError, match="remove it") as refused:
        opened(file)
    assert (refused.value.code, str(file) in str(refused.value)) == ("state_file", True)
    assert file.read_text() == content
