"""Which announced files a commit adds, and in which order.

Rules of this file:
- An announcement below the floor is already in the table; above it, it is not.
- A path goes into a table once. The same file announced twice is taken once; two different
  files under one path are refused. A file that the table already holds is left out.
- A file must lie where the table keeps its data: control events come from a topic that others
  can write to.
- The steps of a task keep their order, so that a delete reaches the rows of the steps before it.
  Two tasks may change one row in a commit: their steps are never one, and later records come later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from connect.config.local_paths import NormalizedLocation, normalized_location
from connect.config.location_policy import table_places
from connect.errors import CommitRefused
from control_schemas.events import ContentFile, DataWritten
from coordinator.kernel.effects import Envelope, TableCommit

_NO_TASK: Final = -1
_Order: TypeAlias = tuple[int, int, int, int, tuple[str, ...]]
"""Layout, highest record timestamp of the task so far, task, number of its step, name of the table.

A table with two names may have a row in the files of both."""


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """Files that share one sequence number."""

    data_files: tuple[ContentFile, ...]
    delete_files: tuple[ContentFile, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What one commit adds.

    Attributes:
        steps: in the order in which they take effect; without deletes there is one at most.
        duplicates: files announced again, taken once.
        repeated: files left out because the table already holds them.
        unverified: files that may be gone: the store is asked for them before the commit.
        copies: announced files by the path of the file that was written in their place.
    """

    steps: tuple[SequenceStep, ...]
    duplicates: int = 0
    repeated: int = 0
    unverified: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_row_level(self) -> bool:
        """Whether rows are deleted: then the order of the steps matters."""
        return any(step.delete_files for step in self.steps)

    @property
    def files(self) -> int:
        """Data and delete files."""
        return sum(len(s.data_files) + len(s.delete_files) for s in self.steps)

    @property
    def paths(self) -> list[str]:
        """Paths of the files."""
        return [f.file_path for s in self.steps for f in (*s.data_files, *s.delete_files)]

    @property
    def announced_paths(self) -> list[str]:
        """Paths of the files as they were announced."""
        return [self.copies.get(path, path) for path in self.paths]

    @property
    def data_files(self) -> list[ContentFile]:
        """Data files of all steps."""
        return [f for s in self.steps for f in s.data_files]

    def without(self, held: Collection[str]) -> Selection:
        """The same without the files that the table already holds."""
        if not held:
            return self
        steps = tuple(
            SequenceStep(
                tuple(f for f in step.data_files if f.file_path not in held),
                tuple(f for f in step.delete_files if f.file_path not in held),
            )
            for step in self.steps
        )
        left = tuple(step for step in steps if step.data_files or step.delete_files)
        return Selection(left, self.duplicates, len(held))

    @property
    def records(self) -> int:
        """Rows of the data files."""
        return sum(f.record_count for s in self.steps for f in s.data_files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the data and delete files."""
        steps = self.steps
        return sum(f.file_size_in_bytes for s in steps for f in (*s.data_files, *s.delete_files))


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
    roots = [normalized_location(root) for root in table_places(location, properties)]
    by_path: dict[str, ContentFile] = {}
    duplicates = 0
    steps: dict[_Order, tuple[list[ContentFile], list[ContentFile]]] = {}
    for order, event in _ordered(commit.announcements, floor):
        data, deletes = steps.setdefault(order, ([], []))
        for files, out in ((event.data_files, data), (event.delete_files, deletes)):
            for file in files or ():
                if file.record_count == 0:
                    continue
                if file.file_path in by_path:
                    _refuse_conflict(by_path[file.file_path], file)
                    duplicates += 1
                    continue
                _refuse_outside(file, roots)
                by_path[file.file_path] = file
                out.append(file)
    ordered = tuple(
        SequenceStep(tuple(d), tuple(x)) for _, (d, x) in sorted(steps.items()) if d or x
    )
    if ordered and not any(s.delete_files for s in ordered):
        ordered = (SequenceStep(tuple(f for s in ordered for f in s.data_files), ()),)
    return Selection(ordered, duplicates)


def _ordered(
    announcements: Iterable[Envelope], floor: Mapping[int, int]
) -> Iterable[tuple[_Order, DataWritten]]:
    """Announcements above the floor with their place.

    A task numbers its steps. Of two steps of one layout and task, the later one has the higher
    number, also across rounds: a task that restarts may answer the round of its predecessor again,
    or a newer round before an older one. Between tasks the numbers say nothing, so the highest
    record timestamp so far decides, then the number of the task. The Java sink gives no numbers;
    there a round is a step.
    """
    rounds: dict[object, int] = {}
    numbered: list[tuple[tuple[int, int], int, Envelope, DataWritten]] = []
    for envelope in announcements:
        event = envelope.event.payload
        if not isinstance(event, DataWritten):
            continue
        headers = envelope.headers
        task, batch = (0, _NO_TASK), 0
        if headers.layout is None or headers.batch is None:
            batch = rounds.setdefault(event.commit_id, len(rounds))
        else:
            task = (headers.layout, _NO_TASK if headers.task is None else headers.task)
            batch = headers.batch
        numbered.append((task, batch, envelope, event))
    newest_ms: dict[tuple[int, int], int] = {}
    for task, batch, envelope, event in sorted(numbered, key=lambda each: each[:2]):
        time_ms = max(newest_ms.get(task, 0), envelope.headers.time_ms or 0)
        newest_ms[task] = time_ms
        if envelope.offset >= floor.get(envelope.partition, 0):
            yield (task[0], time_ms, task[1], batch, event.table.identifier), event


def _refuse_conflict(known: ContentFile, file: ContentFile) -> None:
    if known != file:
        raise CommitRefused(
            "two different files were announced under one path",
            code="path_conflict",
            file=file.file_path,
        )


def _refuse_outside(file: ContentFile, roots: Iterable[NormalizedLocation]) -> None:
    at = normalized_location(file.file_path)
    if any(root.holds(at) and root != at for root in roots):
        return
    raise CommitRefused(
        "an announced file lies outside the table's location",
        code="file_outside_table",
        file=file.file_path,
    )
