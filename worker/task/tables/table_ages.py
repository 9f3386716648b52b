"""How old a task's knowledge of each table is, and which tables it has to load again.

Rules of this file:
- Only tables with rows since their last load are loaded again. A task that knows a thousand tables
  and writes to three of them loads three.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from connect.clock import Clock

REFRESH_MS: Final = 60_000


@dataclass(slots=True)
class TableAges:
    """When tables were loaded, and which of them got rows since.

    Args:
        clock: monotonic.
    """

    clock: Clock
    _loaded_ms: dict[str, int] = field(default_factory=dict, init=False)
    _used: set[str] = field(default_factory=set, init=False)

    def loaded(self, name: str) -> None:
        """A table was loaded, or found missing."""
        self._loaded_ms[name] = self.clock.monotonic_ms()
        self._used.discard(name)

    def forget(self, names: Iterable[str]) -> None:
        """Some tables are not known any more; records may name any number of missing tables."""
        for name in names:
            self._loaded_ms.pop(name, None)
            self._used.discard(name)

    def used(self, names: Iterable[str]) -> None:
        """A batch has rows for these tables."""
        self._used.update(names)

    def old(self, names: Iterable[str]) -> list[str]:
        """Return those of some tables that were not loaded for ``REFRESH_MS``, by name.

        The time of a table that was never loaded begins now.
        """
        now_ms = self.clock.monotonic_ms()
        since_ms = self._loaded_ms.setdefault
        return sorted(n for n in names if now_ms - since_ms(n, now_ms) >= REFRESH_MS)

    def due(self) -> list[str]:
        """Return old tables that got rows since their last load, by name."""
        return self.old(self._used)
