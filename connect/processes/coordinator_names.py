"""Names of the coordinator processes of a node."""

from __future__ import annotations

from typing import Final

COORDINATOR: Final = "coordinator"


def coordinator_names(count: int) -> tuple[str, ...]:
    """``coordinator``, ``coordinator-2``, and so on."""
    return (COORDINATOR, *(f"{COORDINATOR}-{number}" for number in range(2, count + 1)))


def is_coordinator(child: str) -> bool:
    """Whether a child process runs coordinators."""
    return child.partition("-")[0] == COORDINATOR
