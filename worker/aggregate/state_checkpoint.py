"""The checkpoint of a streaming query, saved to a store after each batch.

Rules of this file:
- Spark writes its checkpoint to a folder of this process. No other process uses that folder. After
  each batch its new files are saved to the store, then a manifest that names all files of the
  state.
- A manifest says for which source offsets its state is. Source offsets are stored in the
  transaction of the batch's results, after the manifest. So the state that counts is that for the
  committed source offsets, and a state without them never was.
- Each run has a generation, and saves only to it. A run claims its number, then fences earlier
  runs, then checks that no other run has claimed an equal or higher number. So a run that fences
  another one has a higher number, and a frozen run that continues changes nothing of its successor.
- Two manifests for the same offsets: the one of the higher generation counts. A higher generation
  begins at the committed offsets. If the lower one had committed these offsets, the higher one
  would have begun there, and all of its manifests would be for higher offsets.
- Others may write to the store. A manifest names only local paths below the checkpoint and files of
  runs; any other manifest is no state.
- A file is deleted only after a batch was committed that does not need it. Only files with the name
  of a run's file are deleted: others may store tables or other states below the same location.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from connect.errors import ConfigError, RetriableError
from connect.gateways.storage.state_folder import STATE_UNAVAILABLE, StateFolder
from connect.model.layout import TopicPartition
from control_schemas import bounded_json
from worker.aggregate.restored_files import check_restored
from worker.spark.source_options import offsets_text

STATE_MISSING = "aggregate_state_missing"
DEFINITION_CHANGED = "aggregate_definition_changed"
STATE_CLAIMED = "state_claimed"
EMPTY: Final = -1
"""Number of the batch before the first one."""
MANIFEST_BYTES_MAX: Final = 16 * 2**20
"""A manifest takes about 100 bytes for each file of the state."""
_VERSION: Final = 1
_GENERATION: Final = re.compile(r"g([0-9]{12})-[^/]+(?=/|$)")
_MANIFEST: Final = re.compile(r"manifest-([0-9]{12})\.json")
_CLAIM: Final = "claimed"
_OF_RUN: Final = re.compile(
    rf"{_GENERATION.pattern}/(?:{_CLAIM}|{_MANIFEST.pattern}|file-[0-9]{{12}})"
)
_QUERY: Final = "metadata"
_CHECKSUM: Final = ".crc"
_LISTINGS_MAX: Final = 20
_LOGS: Final = ("offsets", "commits")

Offsets = Mapping[TopicPartition, int]
Scan = dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state in the store.

    Attributes:
        name: of its manifest.
        generation: number of the run that saved it.
        batch: number of its last batch.
        definition: of the aggregates.
        ends: next source offset of each partition.
        files: name in the store by path in the checkpoint.
    """

    name: str
    generation: int
    batch: int
    definition: str
    ends: Offsets
    files: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the manifest's content."""
        return json.dumps(
            {
                "version": _VERSION,
                "batch": self.batch,
                "definition": self.definition,
                "ends": [[*tp, at] for tp, at in sorted(self.ends.items())],
                "files": dict(sorted(self.files.items())),
            }
        ).encode()

    def is_for(self, starts: Offsets) -> bool:
        """Return whether the state continues at these offsets; it may lack new partitions."""
        known = self.ends.keys() & starts.keys()
        return bool(known) and all(self.ends[tp] == starts[tp] for tp in known)


class StateCheckpoint:
    """The states of one connector.

    Args:
        folder: in the store.
        local: where Spark writes its checkpoint; empty.
        definition: of the aggregates.
        new_id: a UUID; makes the name of the generation unique, and is the id of its query.

    Attributes:
        local: where Spark writes its checkpoint.
    """

    def __init__(self, folder: StateFolder, local: Path, definition: str, new_id: str) -> None:
        self._folder = folder
        self.local = local
        self._definition = definition
        self._id = new_id
        self._generation = 0
        self._names: list[str] = []
        self._uploaded: dict[str, tuple[tuple[int, int], str]] = {}
        self._count = 0
        self._kept: SavedState | None = None

    def claim(self) -> None:
        """Claim a generation above all others; call it before earlier runs are fenced.

        Raises:
            RetriableError: ``state_unavailable``.
        """
        self._generation = _newest(self._folder.names()) + 1
        self._folder.write(f"{self._own}/{_CLAIM}", b"")

    def confirm(self) -> None:
        """Check that no other run has an equal or higher number; call it after the fencing.

        Raises:
            RetriableError: ``state_claimed``: another run has one; ``state_unavailable``.
        """
        names = self._folder.names()
        own = f"{self._own}/"
        self._names = [n for n in names if _OF_RUN.fullmatch(n) and not n.startswith(own)]
        if _newest(name for name in names if not name.startswith(own)) >= self._generation:
            raise RetriableError(
                f"another run claimed the state at {self._folder.location} at the same time",
                code=STATE_CLAIMED,
            )

    def begin_empty(self, starts: Offsets) -> SavedState:
        """Save that the state for these offsets is empty.

        Raises:
            RetriableError: ``state_unavailable``.
        """
        name = f"{self._own}/manifest-{0:012d}.json"
        state = SavedState(name, self._generation, EMPTY, self._definition, dict(starts))
        self._folder.write(name, state.to_json())
        self._kept = state
        return state

    def find(self, starts: Offsets) -> SavedState | None:
        """Return the state for committed source offsets; None if there is none.

        Raises:
            ConfigError: ``aggregate_definition_changed``.
            RetriableError: ``state_unavailable``.
        """
        if self._kept is not None and self._kept.is_for(starts):
            return self._kept
        states = [
            state
            for name in self._names
            if (state := self._read(name)) is not None and state.is_for(starts)
        ]
        if not states:
            return None
        state = max(states, key=lambda each: (each.generation, each.batch))
        if state.definition != self._definition:
            raise ConfigError(
                f"the state at {self._folder.location} is of other aggregates: columns, time "
                "field, window, slide, groups, functions, emit or state partitions were changed. "
                "Change them back, or create a connector with another name or location",
                code=DEFINITION_CHANGED,
            )
        return state

    def restore(self, state: SavedState, starts: Offsets) -> None:
        """Write the state to the local folder, with exactly these partitions.

        Raises:
            ConfigError: ``aggregate_state_invalid``.
            RetriableError: ``state_unavailable``.
        """
        self._kept = state
        changed: set[str] = set()
        for path, name in sorted(state.files.items()):
            if path.removesuffix(_CHECKSUM) in changed:
                continue  # Spark does not check a file without a checksum
            target = self.local / path
            try:
                self._folder.download(name, target)
            except FileNotFoundError as error:
                raise RetriableError(
                    f"file {name} of the state at {self._folder.location} is missing",
                    code=STATE_UNAVAILABLE,
                ) from error
            if check_restored(self.local, path, state.batch):
                changed.add(path)
        if state.batch != EMPTY:
            # partitions may be new, or gone with their topic
            log = self.local / "offsets" / str(state.batch)
            lines = log.read_text().splitlines()
            log.write_text("\n".join([*lines[:-1], offsets_text(starts)]))
            # Spark stops another query with the same id, also one that is about to be fenced
            (self.local / _QUERY).write_text(json.dumps({"id": self._id}))
        self._uploaded = {
            path: (_stamp(self.local / path), name)
            for path, name in state.files.items()
            if path != f"offsets/{state.batch}" and path.removesuffix(_CHECKSUM) not in changed
        }

    def save(self, batch: int, ends: Offsets) -> SavedState:
        """Save the state after a batch, which Spark has noted as committed.

        Raises:
            RetriableError: ``state_unavailable``.
        """
        for _ in range(_LISTINGS_MAX):
            before, now = self._scan(batch), self._scan(batch)
            if before.keys() - now.keys():
                continue  # Spark has deleted files: what replaces them may be in no listing yet
            # Spark writes a snapshot's parts before the snapshot: the second listing has them all
            chosen = {
                path: stamp
                for path, stamp in now.items()
                if path in before or not path.endswith(".zip")
            }
            try:
                files = {path: self._stored(path, stamp) for path, stamp in chosen.items()}
            except FileNotFoundError:
                continue
            break
        else:
            raise RetriableError(
                "the files of the state changed each time they were listed", code=STATE_UNAVAILABLE
            )
        name = f"{self._own}/manifest-{batch + 1:012d}.json"
        state = SavedState(name, self._generation, batch, self._definition, dict(ends), files)
        self._folder.write(name, state.to_json())
        return state

    def committed(self, state: SavedState) -> None:
        """Delete what no committed state needs any more; the batch of ``state`` is committed.

        After the first batch of a run these are also files of earlier generations.
        """
        kept, self._kept = self._kept, state
        older, self._names = self._names, []
        before = () if kept is None else (*kept.files.values(), kept.name)
        self._folder.delete({*older, *before} - {*state.files.values(), state.name})
        self._uploaded = {
            path: entry for path, entry in self._uploaded.items() if path in state.files
        }

    def close(self) -> None:
        """Delete the local folder."""
        shutil.rmtree(self.local, ignore_errors=True)

    @property
    def _own(self) -> str:
        return f"g{self._generation:012d}-{self._id}"

    def _read(self, name: str) -> SavedState | None:
        """Return a manifest's state; None for other files, and for one that is not valid."""
        folder, _, last = name.partition("/")
        generation = _GENERATION.fullmatch(folder)
        if generation is None or not _MANIFEST.fullmatch(last):
            return None
        try:
            content = self._folder.read(name, MANIFEST_BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        return _state_in(content, name, int(generation[1]))

    def _stored(self, path: str, stamp: tuple[int, int]) -> str:
        """Return a file's name in the store, after it was saved if it is new."""
        known = self._uploaded.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        self._count += 1
        name = f"{self._own}/file-{self._count:012d}"
        self._folder.upload(self.local / path, name)
        self._uploaded[path] = (stamp, name)
        return name

    def _scan(self, batch: int) -> Scan:
        """Return the local files that belong to the state after a batch, with size and time."""
        stamps: Scan = {}
        for file in self.local.rglob("*"):
            path = file.relative_to(self.local).as_posix()
            if file.name.startswith(".") or not _belongs(path, batch):
                continue
            try:
                if file.is_file():
                    stamps[path] = _stamp(file)
            except FileNotFoundError:
                continue
        return stamps


def _state_in(content: bytes, name: str, generation: int) -> SavedState | None:
    """Return the state of a manifest's content; None if a part of it is not as a run writes it."""
    if len(content) > MANIFEST_BYTES_MAX:
        return None
    try:
        item: dict[str, Any] = bounded_json.loads(content.decode())
        batch, definition, files = item["batch"], item["definition"], item["files"]
        ends = {TopicPartition(topic, partition): at for topic, partition, at in item["ends"]}
        is_valid = (
            type(batch) is int
            and isinstance(definition, str)
            and all(map(_is_place, ends.items()))
            and all(_is_inside(path) and _OF_RUN.fullmatch(file) for path, file in files.items())
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return SavedState(name, generation, batch, definition, ends, files) if is_valid else None


def _is_place(entry: tuple[tuple[Any, Any], Any]) -> bool:
    (topic, partition), at = entry
    return isinstance(topic, str) and type(partition) is int and type(at) is int


def _is_inside(path: str) -> bool:
    """Return whether a path stays below the folder to which it is relative."""
    return "\0" not in path and not {"", ".", ".."} & set(path.split("/"))


def _newest(names: Iterable[str]) -> int:
    """Return the highest number of a generation; 0 if there is none."""
    return max((int(m[1]) for name in names if (m := _GENERATION.match(name))), default=0)


def _belongs(path: str, batch: int) -> bool:
    """Return whether a file is of the state after a batch; the next batch may have begun."""
    if path == _QUERY:
        return False
    parts = path.split("/")
    number = re.match(r"[0-9]+(?=[._]|$)", parts[-1])
    if number is None:
        return True
    if parts[0] in _LOGS:
        return int(number[0]) <= batch
    if parts[0] == "state" and len(parts) == 4:  # state/<operator>/<part>/<file>
        return int(number[0]) <= batch + 1
    return True


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns
