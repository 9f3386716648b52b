"""Rounds of one table with a log of its own, brought in by coordinators that may fail."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from coordinator.kernel.effects import Envelope

DONE: Final = "done"
ROUNDS: Final = 8
STEPS_MAX: Final = 400


class TableRounds(ABC):
    """One table, and what is announced for it."""

    announced: list[Envelope]

    @abstractmethod
    def announce(self) -> None:
        """Announce some files."""

    @abstractmethod
    def step(self) -> str | None:
        """Let one coordinator act; return ``DONE``, what is wrong, or None to continue."""

    @abstractmethod
    def is_complete(self) -> bool:
        """Whether the table has all announced files."""

    @abstractmethod
    def end(self) -> list[str]:
        """Let every request land; return what is wrong with the table."""

    def run(self) -> list[str]:
        """Bring some rounds in; return what is wrong."""
        for _ in range(ROUNDS):
            self.announce()
            if not self.announced:
                continue
            steps = (self.step() for _ in range(STEPS_MAX))
            ended = next((step for step in steps if step), "no commit succeeded")
            if ended != DONE:
                return [ended]
            if not self.is_complete():
                return ["a committed round lacks files"]
        return self.end()
