"""The store of a Parquet folder in memory, whose requests fail, land late, or kill their process.

Rules of this file:
- A file is created on condition that it does not exist, as stores do it. A request that is under
  way lands at any later moment, or never.
- A process that is killed during a request does not know whether the store applied it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from connect.errors import CommitConflict, CommitStateUnknown, RetriableError


class Killed(BaseException):
    """The process was killed during a request."""


@dataclass(slots=True)
class MemoryStore:
    """Files by path; see ``FolderStore``.

    Attributes:
        chance: decides faults.
        fault_ratio: of requests.
        is_conditional: False is a planted defect: a file may be written over.
        copies: False is a planted defect: the store sometimes says that it copied and did not.
        files: content by path.
        under_way: requests that have not landed.
        seen: every file that readers could see at any time.
    """

    chance: random.Random
    fault_ratio: float = 0.0
    is_conditional: bool = True
    copies: bool = True
    files: dict[str, bytes] = field(default_factory=dict)
    under_way: list[Callable[[], object]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    parallel: int = 1
    is_posix: bool = True

    def read(self, path: str) -> bytes | None:
        """The content of a file."""
        self._fails()
        return self.files.get(path)

    def create(self, path: str, content: bytes) -> None:
        """Write a file on condition that it does not exist."""

        def apply() -> bool:
            if path in self.files and self.is_conditional:
                return False
            self.files[path] = content
            return True

        if not self._is_fault():
            if not apply():
                raise CommitConflict(f"{path} exists")
            return
        match self.chance.randrange(5):
            case 0:  # lost on the way
                pass
            case 1:  # applied, answer lost
                apply()
            case 2:  # applied, and refused when the client sent it again
                apply()
                raise CommitConflict(f"{path} exists")
            case 3:
                self._kill(apply)
            case _:  # applied later
                self.under_way.append(apply)
        raise CommitStateUnknown("no answer")

    def replace(self, path: str, content: bytes) -> None:
        """Write a file."""
        self._change(lambda: self.files.update({path: content}))

    def listed(self, folder: str, after: str) -> list[tuple[str, int]]:
        """Names and sizes of a folder's files."""
        self._fails()
        prefix = f"{folder}/"
        files = {
            path.removeprefix(prefix): len(content)
            for path, content in self.files.items()
            if path.startswith(prefix)
        }
        return sorted((n, size) for n, size in files.items() if n > after and "/" not in n)

    def has_files(self, folder: str) -> bool:
        """Whether a folder has files."""
        self._fails()
        return any(path.startswith(f"{folder}/") for path in self.files)

    def size(self, path: str) -> int | None:
        """Size of a file."""
        self._fails()
        return len(self.files[path]) if path in self.files else None

    def publish(self, staged: str, path: str, size_bytes: int) -> bool:
        """Copy a staged file."""
        if staged not in self.files:
            self._fails()
            return False
        if not self.copies and self.chance.random() < 0.2:
            return True

        def apply() -> None:
            if staged in self.files:
                assert len(self.files[staged]) == size_bytes
                self.files[path] = self.files[staged]
                self.seen.add(path)

        self._change(apply)
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; those that cannot be deleted are left."""
        for path in paths:
            if not self._is_fault():
                self.files.pop(path, None)
            elif self.chance.randrange(3) == 0:
                self._kill(lambda path=path: self.files.pop(path, None))

    def land_some(self) -> None:
        """Let requests under way reach the store, in any order."""
        self.chance.shuffle(self.under_way)
        while self.under_way and self.chance.random() < 0.5:
            self.under_way.pop()()

    def visible(self) -> list[str]:
        """Files that readers see."""
        return sorted(path for path in self.files if path.endswith(".parquet"))

    def _change(self, apply: Callable[[], object]) -> None:
        if not self._is_fault():
            apply()
            return
        match self.chance.randrange(4):
            case 0:
                pass
            case 1:
                apply()
            case 2:
                self._kill(apply)
            case _:
                self.under_way.append(apply)
        raise RetriableError("no answer", code="catalog_unavailable")

    def _kill(self, apply: Callable[[], object]) -> None:
        match self.chance.randrange(3):
            case 0:
                apply()
            case 1:
                self.under_way.append(apply)
        raise Killed

    def _fails(self) -> None:
        if self._is_fault():
            if self.chance.randrange(4) == 0:
                raise Killed
            raise RetriableError("the store is away", code="catalog_unavailable")

    def _is_fault(self) -> bool:
        return self.chance.random() < self.fault_ratio
