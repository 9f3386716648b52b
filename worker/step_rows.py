"""Rows on their way through transformations by columns, and what a chain needs of records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from worker.blocks import Block, one_chunk

Mask = npt.NDArray[np.bool_]
Fields = dict[str, pa.DataType]


class OriginColumns:
    """Where rows come from, read when a step asks for it.

    Args:
        block: of the rows.
        places: their positions in it.
    """

    def __init__(self, block: Block, places: npt.NDArray[np.int64]) -> None:
        self._block = block
        self._places = None if len(places) == block.count else pa.array(places)

    def column(self, name: str) -> pa.Array:
        """``topic``, ``partition``, ``offset`` or ``timestamp`` (milliseconds or null)."""
        if name == "timestamp":
            found = self._block.timestamps_ms
        else:
            found = one_chunk(self._block.table.column(name))
        if self._places is not None:
            found = found.take(self._places)
        return found if name == "topic" else found.cast(pa.int64())


@dataclass(slots=True)
class Rows:
    """Rows on their way through the steps.

    Attributes:
        columns: fields by name, one chunk each.
        count: how many rows.
        origins: where they come from.
        doubt: rows that the reference must take.
        dropped: rows that a filter took out.
        topics: their topics, None until a step changed them.
    """

    columns: dict[str, pa.Array]
    count: int
    origins: OriginColumns
    doubt: Mask
    dropped: Mask
    topics: pa.Array | None = None

    @property
    def current_topics(self) -> pa.Array:
        """The topics as changed so far."""
        return self.origins.column("topic") if self.topics is None else self.topics

    def column(self, name: str) -> pa.Array:
        """A field; nulls when no step before left one."""
        found = self.columns.get(name)
        return pa.nulls(self.count) if found is None else found

    def suspect(self, rows: Mask | None) -> None:
        """Leave rows to the reference, unless they were dropped before."""
        if rows is not None:
            self.doubt |= rows & ~self.dropped


@dataclass(slots=True)
class Plan:
    """What a chain needs of the records.

    Attributes:
        fields: what to decode, with the first guess of each type.
        shadowed: names of fields; a record that has one goes to the reference.
    """

    fields: Fields
    shadowed: set[str] = field(default_factory=set)


class Step(Protocol):
    """One transformation."""

    def plan(self, wanted: Plan) -> None:
        """Change what the following steps need into what this one needs."""
        ...

    def apply(self, rows: Rows) -> None:
        """Transform."""
        ...
