"""Checks files of a state before Spark reads them: a writer of the store chooses their content.

Rules of this file:
- Spark sets some properties of the session from the log of offsets, and two of them name classes.
  Only those that a run writes are left in it.
- A snapshot's metadata names the files that Spark creates locally and reads from the checkpoint.
  Spark checks no name, so this module does: none has a folder.
- Spark reads a ZIP file from its start, Python from its list of entries. Both are the same only in
  a file that this module writes, so a snapshot is written again.

Source:
    Spark 4.1: ``OffsetSeqMetadata.setSessionConf``, ``RocksDBFileManager`` and
    ``RocksDBCheckpointMetadata``.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from connect.errors import ConfigError
from control_schemas import bounded_json

STATE_INVALID = "aggregate_state_invalid"
PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SNAPSHOT_BYTES_MAX: Final = 256 * 2**20
"""Of a snapshot's files, decompressed. They are RocksDB's lists of files, and have no rows."""
LOG_BYTES_MAX: Final = 2**20
_METADATA_BYTES_MAX: Final = 4 * 2**20
_PIECE_BYTES: Final = 2**20
_PROVIDER_KEY: Final = "spark.sql.streaming.stateStore.providerClass"
_SETTING: Final = re.compile(r"[A-Za-z0-9_-]*")  # no class of a package
_METADATA: Final = "metadata"
_OFFSETS: Final = re.compile(r"offsets/(0|[1-9][0-9]{0,17})")
_ENTRY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
_IMMUTABLE: Final = re.compile(r"[A-Za-z0-9_-]+\.(?:sst|log)")
_FILE_LISTS: Final = ("sstFiles", "logFiles")
_SIZE: Final = "sizeBytes"
_WRONG: Final = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,  # encrypted, or with a method that Python does not know
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)


def check_restored(local: Path, path: str, batch: int, bytes_max: int = SNAPSHOT_BYTES_MAX) -> bool:
    """Check a restored file, and write it again where Spark could read it differently.

    Args:
        local: folder of the checkpoint.
        path: of the file in it.
        batch: number of the state's last batch.
        bytes_max: size of a snapshot, compressed and not.

    Returns:
        Whether the file was changed: a checksum that Spark stored for it no longer fits.

    Raises:
        ConfigError: ``aggregate_state_invalid``: no run writes such a file.
    """
    try:
        if path.startswith("offsets/"):
            _check_log(local / path, path, batch)
        elif path.endswith(".zip"):
            _write_again(local / path, bytes_max)
            return True
    except _WRONG as error:
        raise _invalid(path) from error
    return False


def _invalid(path: str) -> ConfigError:
    return ConfigError(
        f"the file {path} of the state is not as a run writes it: another client changed the "
        "state. Restore the state, and let only the nodes write to its location",
        code=STATE_INVALID,
    )


def _check_log(file: Path, path: str, batch: int) -> None:
    """Check a file of the log of offsets; ValueError if a part of it is not a run's."""
    match = _OFFSETS.fullmatch(path)
    if match is None or int(match[1]) > batch:
        raise ValueError("it is of no batch")
    if file.stat().st_size > LOG_BYTES_MAX:
        raise ValueError("it is too large")
    version, head, *offsets = file.read_text().split("\n")
    if not head.strip("{}"):
        return
    properties = _object(head)
    settings = properties.get("conf", {})
    for key, value in settings.items():
        is_own = value == PROVIDER if key == _PROVIDER_KEY else _SETTING.fullmatch(value)
        if not is_own:
            raise ValueError(f"{key} is not a setting of a run")
    file.write_text("\n".join([version, json.dumps(properties), *offsets]))


def _write_again(file: Path, bytes_max: int) -> None:
    """Write a snapshot with the entries that were checked; ValueError if one is not a run's."""
    if file.stat().st_size > bytes_max:
        raise ValueError("it is too large")
    written = file.with_name(f".{file.name}.checked")
    try:
        with (
            zipfile.ZipFile(file) as read,
            zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as target,
        ):
            _copy_entries(read, target, bytes_max)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)


def _copy_entries(read: zipfile.ZipFile, target: zipfile.ZipFile, bytes_max: int) -> None:
    size = 0
    names: set[str] = set()
    for entry in read.infolist():
        if not _ENTRY.fullmatch(entry.filename) or entry.filename in names:
            raise ValueError("an entry has no plain name, or the name of another one")
        names.add(entry.filename)
        with read.open(entry) as source:
            if entry.filename == _METADATA:
                target.writestr(_METADATA, _checked_metadata(source.read(_METADATA_BYTES_MAX)))
                continue
            with target.open(entry.filename, "w") as copy:
                for piece in _pieces(source):
                    size += len(piece)
                    if size > bytes_max:
                        raise ValueError("it is too large")
                    copy.write(piece)


def _pieces(source: Any) -> Iterator[bytes]:
    while piece := source.read(_PIECE_BYTES):
        yield piece


def _checked_metadata(content: bytes) -> str:
    """Return the metadata of a snapshot; ValueError if it names a file outside of its folder."""
    version, _, text = content.decode().partition("\n")
    metadata = _object(text)
    for kind in _FILE_LISTS:
        for file in metadata.get(kind) or ():
            for key, value in file.items():
                if key != _SIZE and value is not None and not _IMMUTABLE.fullmatch(value):
                    raise ValueError(f"{key} is not the name of a file of RocksDB")
    return f"{version}\n{json.dumps(metadata)}"


def _object(text: str) -> dict[str, Any]:
    value = bounded_json.loads(text)
    if not isinstance(value, dict):
        raise TypeError("it is no JSON object")
    return value
