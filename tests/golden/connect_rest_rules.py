"""Where our answers differ from the recorded ones on purpose; docs/rest-differences.md says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass
class Pair:
    """A recorded answer and ours; rules change both until they are equal or give up."""

    step: dict[str, Any]
    theirs: dict[str, Any]
    ours: dict[str, Any]

    def drop_lengths(self) -> None:
        """Once a body differs on purpose, its length does too."""
        for answer in (self.theirs, self.ours):
            answer["headers"].pop("Content-Length", None)
            answer["headers"].pop("content-length", None)

    def settle(self) -> bool:
        """The rule explains the whole difference."""
        self.theirs = self.ours
        return True


class Rule(NamedTuple):
    """``apply`` says whether it had a part in the difference."""

    name: str
    apply: Callable[[Pair], bool]


RULES: tuple[Rule, ...] = ()
