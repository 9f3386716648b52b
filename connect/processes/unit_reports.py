"""What a child process reports of the tasks and coordinators that it runs.

Both ends of the pipe use these classes. They are decoded once, where the node receives a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class UnitReport:
    """One start of a task or coordinator, as its process reports it.

    Attributes:
        task: None is the coordinator.
        generation: number of the start.
        sequence: rises with each report of a start.
        layout: number of the layout.
        has_ended: this is the last report of the start.
        code: of an error; ``trace`` and ``is_retriable`` describe it too.
        waits_for: completes the sentence "waiting for ..."; None while it works.
        idle_ms: time without progress; above ``idle_ms_max`` the unit is stalled.
    """

    connector: str
    task: int | None
    generation: int
    sequence: int = 0
    layout: int = 0
    state: str = ""
    has_ended: bool = False
    code: str | None = None
    trace: str | None = None
    is_retriable: bool = False
    waits_for: str | None = None
    waited_ms: int = 0
    idle_ms: int = 0
    idle_ms_max: int = 0

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Decode a message ``state``, or an item of an inventory."""
        task = fields.get("task")
        return cls(
            fields["connector"],
            task if isinstance(task, int) else None,
            fields["generation"],
            fields.get("sequence", 0),
            fields.get("layout", 0),
            fields.get("state", ""),
            has_ended=bool(fields.get("ended")),
            code=fields.get("code"),
            trace=fields.get("trace"),
            is_retriable=bool(fields.get("retriable")),
            waits_for=fields.get("waits_for"),
            waited_ms=fields.get("waited_ms", 0),
            idle_ms=fields.get("idle_ms", 0),
            idle_ms_max=fields.get("idle_ms_max", 0),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form on the pipe."""
        fields = {
            "connector": self.connector,
            "task": self.task,
            "generation": self.generation,
            "sequence": self.sequence,
            "layout": self.layout,
            "state": self.state,
            "ended": self.has_ended,
            "code": self.code,
            "trace": self.trace,
            "retriable": self.is_retriable,
        }
        if self.waits_for is not None:
            fields |= {"waits_for": self.waits_for, "waited_ms": self.waited_ms}
        if self.idle_ms or self.idle_ms_max:
            fields |= {"idle_ms": self.idle_ms, "idle_ms_max": self.idle_ms_max}
        return fields


@dataclass(frozen=True, slots=True)
class Inventory:
    """All units that a child process runs.

    Attributes:
        last_generation: the highest number of a start that the process has received.
    """

    last_generation: int
    units: tuple[UnitReport, ...]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Decode a message ``inventory``."""
        units = tuple(map(UnitReport.from_json, fields["units"]))
        return cls(fields["last_generation"], units)

    def to_json(self) -> dict[str, Any]:
        """Return the form on the pipe."""
        units = [unit.to_json() for unit in self.units]
        return {"event": "inventory", "last_generation": self.last_generation, "units": units}
