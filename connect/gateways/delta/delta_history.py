"""Which files the newest versions of a Delta table added or removed, from the files of its log.

Rules of this file:
- A version is read from its own file of the log. Checkpoints do not say when a file was added.

Source:
    Delta transaction log protocol, "Delta Log Entries".
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from pyiceberg.io import FileIO

from connect.gateways.storage.log_sizes import check_values, limited_content
from control_schemas import bounded_json

_VERSIONS_MAX: Final = 1_000


def files_since(io: FileIO, log: str, version: int, since_ms: int) -> frozenset[str] | None:
    """Return the files that versions since then added or removed.

    Args:
        io: opens the files of the log.
        log: its folder.
        version: the newest one.
        since_ms: milliseconds since 1970.

    Returns:
        Paths below the table's location; None where the log does not reach so far back.

    Raises:
        CommitRefused: ``metadata_too_large``. OSError, ValueError: the log cannot be read.
    """
    files: set[str] = set()
    for number in range(version, max(version - _VERSIONS_MAX, -1), -1):
        try:
            with io.new_input(f"{log}/{number:020}.json").open() as stream:
                content = limited_content(stream.read)
        except FileNotFoundError:
            return None
        check_values(content)
        actions = [bounded_json.loads(line) for line in content.decode().splitlines() if line]
        made_ms = max((_time(each) for each in actions), default=None)
        if made_ms and made_ms < since_ms:
            return frozenset(files)
        for action in actions:
            for kind in ("add", "remove"):
                if isinstance(path := action.get(kind, {}).get("path"), str):
                    files.add(unquote(path))
    return frozenset(files) if version < _VERSIONS_MAX else None


def _time(action: Any) -> int:
    at = action.get("commitInfo", {}).get("timestamp")
    return at if isinstance(at, int) else 0
