"""Which announced files a commit adds, and in which order.

Rules of this file:
- An announcement below the floor is already in the table; above it, it is not.
- A path goes into a table once. The same file announced twice is taken once; two different
  files under one path are refused.
- A file must lie where the table keeps its data: control events come from a topic that others
  can write to.
- Batches keep their order, so that a delete reaches the rows of the batches before it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connect.errors import CommitRefused
from control_schemas.events import ContentFile, DataWritten
from coordinator.effects import Envelope, TableCommit

_ROOT_PROPERTIES = (
    "write.data.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
_LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SAME_SCHEME = {"s3a": "s3", "s3n": "s3", "": "file", "wasbs": "abfss", "wasb": "abfs"}


@dataclass(frozen=True, slots=True)
class Step:
    """Files that share one sequence number."""

    data_files: tuple[ContentFile, ...]
    delete_files: tuple[ContentFile, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What one commit adds.

    Attributes:
        steps: in the order in which they take effect; without deletes there is one at most.
        duplicates: files announced again, taken once.
    """

    steps: tuple[Step, ...]
    duplicates: int = 0

    @property
    def is_row_level(self) -> bool:
        """Whether rows are deleted: then the order of the steps matters."""
        return any(step.delete_files for step in self.steps)

    @property
    def files(self) -> int:
        """Data and delete files."""
        return sum(len(s.data_files) + len(s.delete_files) for s in self.steps)

    @property
    def records(self) -> int:
        """Rows of the data files."""
        return sum(f.record_count for s in self.steps for f in s.data_files)


def select(
    commit: TableCommit, floor: Mapping[int, int], location: str, properties: Mapping[str, str]
) -> Selection:
    """Choose the files of a commit.

    Args:
        commit: announcements in control order per partition.
        floor: control partition -> next control offset.
        location: the table's location.
        properties: the table's properties, for other places of data.

    Raises:
        CommitRefused: ``file_outside_table``, ``path_conflict``.
    """
    roots = [_normal(r) for r in (location, *(properties.get(p) for p in _ROOT_PROPERTIES)) if r]
    seen: dict[str, ContentFile] = {}
    duplicates = 0
    steps: dict[tuple[int, int], tuple[list[ContentFile], list[ContentFile]]] = {}
    for order, event in _ordered(commit.announcements, floor):
        data, deletes = steps.setdefault(order, ([], []))
        for files, out in ((event.data_files, data), (event.delete_files, deletes)):
            for file in files or ():
                if file.record_count == 0:
                    continue
                if file.file_path in seen:
                    _refuse_conflict(seen[file.file_path], file)
                    duplicates += 1
                    continue
                _refuse_outside(file, roots)
                seen[file.file_path] = file
                out.append(file)
    made = tuple(Step(tuple(d), tuple(x)) for _, (d, x) in sorted(steps.items()) if d or x)
    if made and not any(s.delete_files for s in made):
        made = (Step(tuple(f for s in made for f in s.data_files), ()),)
    return Selection(made, duplicates)


def _ordered(
    announcements: Iterable[Envelope], floor: Mapping[int, int]
) -> Iterable[tuple[tuple[int, int], DataWritten]]:
    """Announcements above the floor with their place.

    Tasks number their batches so that of two batches of one layout that may touch the same row
    the later one has the higher number, whatever round they answer: a task that starts over may
    answer its predecessor's round again, or a newer one before an older. Java's sink gives no
    numbers; there a round is a step.
    """
    rounds: dict[object, int] = {}
    for envelope in announcements:
        event = envelope.event.payload
        if not isinstance(event, DataWritten):
            continue
        headers = envelope.headers
        if headers.layout is None or headers.batch is None:
            place = (0, rounds.setdefault(event.commit_id, len(rounds)))
        else:
            place = (headers.layout, headers.batch)
        if envelope.offset >= floor.get(envelope.partition, 0):
            yield place, event


def _refuse_conflict(known: ContentFile, file: ContentFile) -> None:
    if known != file:
        raise CommitRefused(
            "two different files were announced under one path",
            code="path_conflict",
            file=file.file_path,
        )


def _refuse_outside(file: ContentFile, roots: Iterable[tuple[str, str, str]]) -> None:
    scheme, host, path = _normal(file.file_path)
    for root_scheme, root_host, root_path in roots:
        if (scheme, host) == (root_scheme, root_host) and path.startswith(f"{root_path}/"):
            return
    raise CommitRefused(
        "an announced file lies outside the table's location",
        code="file_outside_table",
        file=file.file_path,
    )


def _normal(location: str) -> tuple[str, str, str]:
    """Scheme, host and path without detours; spellings of one place compare equal.

    Nothing is a query or a fragment here: stores take ``?`` and ``#`` as part of a name.
    """
    found = _LOCATION.fullmatch(location)
    scheme, host, path = found.groups(default="") if found else ("", "", location)
    path = posixpath.normpath("/" + path.lstrip("/")).rstrip("/")
    return _SAME_SCHEME.get(scheme.lower(), scheme.lower()), host, path
