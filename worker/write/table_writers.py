"""The writers of a Spark task's tables, made when their first row arrives.

Rules of this file:
- A task knows all tables of its connector, and a batch may have rows for a few of them. Only these
  cost anything, apart from one sample of each kind of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from connect.records.conversion.row_converter import NAME_MAPPING_PROPERTY
from worker.batch.pipeline_spec import TablePlan
from worker.write.table_writer import FileNames, TableWriter


@dataclass(frozen=True, slots=True)
class AlikeTables:
    """Tables with equal columns and an equal name mapping.

    Attributes:
        sample: the writer of one of them.
        names: all of them.
    """

    sample: TableWriter
    names: tuple[str, ...]


class TableWriters(Mapping[str, TableWriter]):
    """Writers by the name of their table; a writer is made when it is first asked for.

    Args:
        plans: the known tables.
        file_names: returns a unique name on each call.
    """

    def __init__(self, plans: Iterable[TablePlan], file_names: FileNames) -> None:
        self._plans = {plan.name: plan for plan in plans}
        self._file_names = file_names
        self._made: dict[str, TableWriter] = {}

    def __getitem__(self, name: str) -> TableWriter:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = TableWriter(self._plans[name], self._file_names)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._plans

    def __iter__(self) -> Iterator[str]:
        return iter(self._plans)

    def __len__(self) -> int:
        return len(self._plans)

    @cached_property
    def alike(self) -> tuple[AlikeTables, ...]:
        """The tables by their columns; connectors often have many tables of few kinds."""
        kinds: dict[tuple[str, str | None, str], list[str]] = {}
        for plan in self._plans.values():
            kind = plan.schema_json, plan.properties.get(NAME_MAPPING_PROPERTY), plan.table_format
            kinds.setdefault(kind, []).append(plan.name)
        return tuple(AlikeTables(self[names[0]], tuple(names)) for names in kinds.values())

    @property
    def made_count(self) -> int:
        """How many writers were made."""
        return len(self._made)
