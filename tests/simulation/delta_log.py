"""A Delta table's log in memory, whose commits may fail, land late, or land without an answer.

Rules of this file:
- A version is written on condition that it does not exist, as stores do it. A request that is
  under way lands at any later moment, or never.
- The production committer runs over it. Coordinators act one after the other; the requests that
  earlier ones left under way land between their steps.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connect.clock import SystemClock
from connect.errors import CommitConflict, CommitStateUnknown, RetriableError
from connect.gateways.delta.delta_model import DeltaFile, LiveDeltaFile
from connect.gateways.storage.store_file_io import StoreFileIO
from tests.simulation.iceberg_catalog import MemoryIO

LOCATION = "file:///lake/db/events"
TABLE_UUID = uuid.UUID(int=7)
SCHEMA = Schema(NestedField(10_001, "id", LongType(), required=False))


class StoredNames(MemoryIO):
    """A store whose files have names only.

    Args:
        stored: their paths.
    """

    def __init__(self, stored: set[str]) -> None:
        super().__init__(dict.fromkeys(stored, b"-"))


class SteppedClock(SystemClock):
    """A clock that steps at each wait, with identities from a seed."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now_ms = 1_800_000_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds."""
        return self._now_ms

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self._now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        """Step."""
        self._now_ms += duration_ms

    def new_uuid(self) -> uuid.UUID:
        """An identity."""
        return uuid.UUID(int=self._chance.getrandbits(128))

    def new_snapshot_id(self) -> int:
        """A number."""
        return self._chance.getrandbits(62)


@dataclass(slots=True)
class LogVersion:
    """One version of the log."""

    files: tuple[str, ...]
    transactions: dict[str, int]
    metadata: dict[str, Any]
    removed: tuple[str, ...] = ()
    made_ms: int = 0


@dataclass(slots=True)
class DeltaLog:
    """The log, and the requests that are under way.

    Attributes:
        chance: decides faults.
        fault_ratio: of requests.
        is_conditional: False is a planted defect: a version may be written over.
        keeps_transactions: False is a planted defect: identifiers are lost.
        location: of the table.
        stored: paths of the files in the store; None for any.
    """

    chance: random.Random
    fault_ratio: float = 0.3
    is_conditional: bool = True
    keeps_transactions: bool = True
    location: str = LOCATION
    stored: set[str] | None = None
    versions: list[LogVersion] = field(default_factory=lambda: [LogVersion((), {}, {})])
    under_way: list[tuple[int, LogVersion]] = field(default_factory=list)

    def load(self, _identifier: Sequence[str]) -> DeltaView:
        """Return the newest version, or raise if the store is away."""
        self.land_some()
        if self._is_fault():
            raise RetriableError("the store is away", code="catalog_unavailable")
        return DeltaView(self, len(self.versions) - 1, self.location)

    def write(self, number: int, version: LogVersion) -> None:
        """Write a version, with any fault of a store or client."""
        if not self._is_fault():
            self.land(number, version)
            return
        match self.chance.randrange(4):
            case 0:  # lost on the way
                raise CommitStateUnknown("no answer")
            case 1:  # applied, answer lost
                self.land(number, version, is_late=True)
                raise CommitStateUnknown("no answer")
            case 2:  # applied, and refused when the client sent it again
                self.land(number, version)
                raise CommitConflict("the version exists")
            case _:  # applied later
                self.under_way.append((number, version))
                raise CommitStateUnknown("no answer")

    def land(self, number: int, version: LogVersion, *, is_late: bool = False) -> None:
        """Apply a request on condition that its version does not exist."""
        if number < len(self.versions):
            if self.is_conditional:
                if not is_late:
                    raise CommitConflict("the version exists")
                return
            number = len(self.versions)
        self.versions.append(version)

    def land_some(self) -> None:
        """Let requests under way reach the store, in any order."""
        self.chance.shuffle(self.under_way)
        while self.under_way and self.chance.random() < 0.5:
            self.land(*self.under_way.pop(), is_late=True)

    def live(self, version: int | None = None) -> list[str]:
        """Files of a version, by default the newest."""
        live: dict[str, None] = {}
        for each in self.versions if version is None else self.versions[: version + 1]:
            for path in each.removed:
                live.pop(path, None)
            live.update(dict.fromkeys(each.files))
        return list(live)

    def files(self) -> list[str]:
        """Files of the table, once for each time they were added."""
        return [file for version in self.versions for file in version.files]

    def _is_fault(self) -> bool:
        return self.chance.random() < self.fault_ratio


@dataclass(frozen=True, slots=True)
class DeltaView:
    """One version of the log, as a coordinator loaded it; see ``DeltaVersion``."""

    log: DeltaLog
    version: int
    location: str = LOCATION
    table_uuid: uuid.UUID = TABLE_UUID
    schema: Schema = SCHEMA
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC

    def transaction(self, app_id: str) -> int | None:
        """The last version of an identifier."""
        if not self.log.keeps_transactions and self.log.chance.random() < 0.2:
            return None
        found = [v.transactions.get(app_id) for v in self.log.versions[: self.version + 1]]
        return next((number for number in reversed(found) if number is not None), None)

    def append(
        self,
        files: Sequence[DeltaFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """Commit as the next version."""
        return self.replace(files, (), transactions, metadata, now_ms)

    def replace(
        self,
        files: Sequence[DeltaFile],
        removed: Sequence[DeltaFile],
        transactions: Mapping[str, int],
        metadata: Mapping[str, Any],
        now_ms: int,
    ) -> int:
        """Commit as the next version, and remove files."""
        paths, gone = tuple(f.path for f in files), tuple(f.path for f in removed)
        change = LogVersion(paths, dict(transactions), dict(metadata), gone, now_ms)
        self.log.write(self.version + 1, change)
        return self.version + 1

    @property
    def properties(self) -> Mapping[str, str]:
        """No properties."""
        return {}

    @property
    def io(self) -> FileIO:
        """Opens the files of the simulated table."""
        return StoreFileIO({}) if self.log.stored is None else StoredNames(self.log.stored)

    def files_since(self, since_ms: int) -> frozenset[str]:
        """The files of versions since then."""
        versions = [v for v in self.log.versions[: self.version + 1] if v.made_ms >= since_ms]
        return frozenset(path for v in versions for path in (*v.files, *v.removed))

    def check_changes(self) -> None:
        """Do nothing: files may be removed."""

    def live_files(self, _columns: Iterable[str]) -> list[LiveDeltaFile]:
        """The files of this version, without statistics."""
        paths = self.log.live(self.version)
        return [LiveDeltaFile(path, 1, {}, {}, {}) for path in paths]

    def committed_version(self, key: str, value: str) -> int | None:
        """The newest version with a metadata entry."""
        for number in range(self.version, -1, -1):
            if self.log.versions[number].metadata.get(key) == value:
                return number
        return None
