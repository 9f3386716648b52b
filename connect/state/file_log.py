"""A store's log in a file, for a node without storage topics (``icefloe.state.storage=file``).

Rules of this file:
- The file is replaced as a whole: written to another file, flushed to the disk, renamed. A reader
  sees the old content or the new one, also after a power failure.
- The node holds the lock of the folder, so it is the only writer. Its worker reads the file.
- Lines are in the order in which the keys were last written, as in a compacted topic.
- The first line names the format and its version.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from connect.errors import ConfigError, RetriableError
from connect.logs import PRIVATE
from connect.state.connector_state import ConfigState
from connect.state.state_log import OnRecord
from connect.state.topic_records import decode

CONFIG_FILE = "connectors.state"
STATUS_FILE = "statuses.state"
_FORMAT = {"format": "icefloe-state", "version": 1}


class FileLog:
    """One file, read and written by this process. Thread-safe.

    Args:
        file: which one; its folder exists and is locked by this process.
        on_record: called for every record in order. It must neither raise nor write.
    """

    def __init__(self, file: Path, on_record: OnRecord) -> None:
        self._file = file
        self._on_record = on_record
        self._lock = threading.Lock()
        self._entries: dict[str, bytes] = {}
        self._position = 0

    @property
    def position(self) -> int:
        """Number of records that were read and written."""
        return self._position

    def start(self) -> None:
        """Read the file, if there is one.

        Raises:
            ConfigError: ``state_file``: it cannot be read.
        """
        with self._lock:
            self._entries = read_entries(self._file)
            self._deliver(list(self._entries.items()))

    def acquire(self) -> None:
        """Do nothing: the owner of the folder is the writer."""

    def await_position(self, offset: int, timeout_s: float) -> bool:
        """Return whether the position is read; no other process writes."""
        del timeout_s
        return self._position >= offset

    def write(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        """Replace the file by one with these records.

        Raises:
            RetriableError: ``state_file``: it cannot be written; nothing has changed.
        """
        with self._lock:
            entries = dict(self._entries)
            for key, value in records:
                entries.pop(key, None)
                if value is not None:
                    entries[key] = value
            try:
                _replace(self._file, entries)
            except OSError as e:
                raise RetriableError(
                    f"the state file {self._file} cannot be written: {e.strerror}; check space and "
                    "permissions of icefloe.state.dir",
                    code="state_file",
                ) from e
            self._entries = entries
            self._deliver(records)

    def close(self) -> None:
        """Do nothing: every write is on the disk."""

    def _deliver(self, records: Sequence[tuple[str, bytes | None]]) -> None:
        for key, value in records:
            self._on_record(key, value)
        self._position += len(records)


def read_state(file: Path) -> ConfigState:
    """Return the connectors of a state file; none if it does not exist.

    Raises:
        ConfigError: as ``read_entries``.
    """
    state = ConfigState()
    for key, value in read_entries(file).items():
        with contextlib.suppress(ValueError):
            state.apply(key, decode(value))
    return state


def read_entries(file: Path) -> dict[str, bytes]:
    """Return keys and values of a file; none if it does not exist.

    Raises:
        ConfigError: ``state_file``: it cannot be read, or another version wrote it.
    """
    try:
        header, *lines = file.read_text("utf-8").splitlines()
        _check_format(header)
        return {key: value.encode() for key, value in map(_pair, lines)}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as e:
        raise ConfigError(
            f"the state file {file} cannot be read: {e}; restore it from a copy, or remove it: the "
            "source offsets are in Kafka, and layout numbers continue above the announced ones",
            code="state_file",
        ) from e


def _check_format(line: str) -> None:
    if json.loads(line) != _FORMAT:
        raise ValueError("it has another format or version")


def _pair(line: str) -> tuple[str, str]:
    pair: Any = json.loads(line)
    if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(t, str) for t in pair):
        raise ValueError("a line is not a key with its value")
    return pair[0], pair[1]


def _replace(file: Path, entries: Mapping[str, bytes]) -> None:
    lines = [json.dumps(_FORMAT), *(json.dumps([k, v.decode()]) for k, v in entries.items())]
    new_file = file.with_suffix(".new")
    descriptor = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as written:
        written.write("\n".join(lines) + "\n")
        written.flush()
        os.fsync(written.fileno())
    new_file.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # the new name is on the disk as well
    finally:
        os.close(folder)
