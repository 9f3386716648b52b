"""Cases whose CPU time is compared: they take turns, and the least time of each is printed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol


class CpuCase(Protocol):
    """One case; ``used`` has the CPU seconds per million records of each run, by process."""

    used: list[dict[str, float]]

    def run(self, records: int) -> None:
        """Run once and add to ``used``."""


def take_turns(cases: Mapping[str, CpuCase], records: int, runs: int) -> None:
    """Run each case so many times, and once before to warm it."""
    for _ in range(runs + 1):
        for case in cases.values():
            case.run(records)


def print_least(cases: Mapping[str, CpuCase]) -> None:
    """Print the least CPU time of each case; its first run does not count."""
    print(f"{'CPU s / M records':22} driver   java  python     all   load {os.getloadavg()[0]:.1f}")
    for name, case in cases.items():
        least = min(case.used[1:], key=lambda used: sum(used.values()))
        parts = " ".join(f"{least[part]:6.2f}" for part in ("driver", "java", "python"))
        print(f"{name:22} {parts}  {sum(least.values()):6.2f}")
