"""A connector's configuration as rules across keys look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from connect.config.client_overrides import split
from connect.config.key import Raw
from connect.errors import ConfigError
from connect.records.table_names import HOLE, topic_map
from connect.validation.key_checks import Checked, check_framework


@dataclass(frozen=True, slots=True)
class Given:
    """Typed values, and what follows from them.

    Attributes:
        raw: as sent or resolved.
        checked: values by key; None where there is an error.
    """

    raw: Raw
    checked: Checked = field(default_factory=Checked)

    @classmethod
    def of(cls, raw: Raw, own: Checked) -> Given:
        """Of a configuration whose keys of the sink are typed in ``own``."""
        checked = check_framework(raw)
        checked.merge(own)
        return cls(raw, checked)

    def __getitem__(self, name: str) -> Any:
        """The typed value of a key; None where it is wrong, or cannot be known yet."""
        return None if self.is_open(name) else self.checked.values.get(name)

    def has(self, name: str) -> bool:
        """Whether the key is there with a value."""
        return bool(self.raw.get(name))

    def is_open(self, name: str) -> bool:
        """Whether a placeholder stands for (a part of) the value."""
        return "${" in (self.raw.get(name) or "")

    def under(self, prefix: str) -> dict[str, str]:
        """Keys below a prefix with their text."""
        return split(self.raw, prefix)

    def qualified(self, table: str) -> str:
        """A table's name with its namespace."""
        namespace = self["iceberg.tables.default-namespace"]
        return f"{namespace}.{table}" if namespace and "." not in table else table

    @property
    def tables(self) -> tuple[str, ...]:
        """Tables of ``iceberg.tables``, qualified."""
        return tuple(self.qualified(table) for table in self["iceberg.tables"] or ())

    @property
    def topic_tables(self) -> dict[str, str]:
        """Tables by topic, qualified; none where the map is wrong."""
        try:
            entries = topic_map(self["iceberg.tables.topic-to-table-map"] or [])
        except ConfigError:
            return {}
        return {topic: self.qualified(table) for topic, table in entries.items()}

    @property
    def dead_letter_table(self) -> str | None:
        """Table of the dead letters, qualified."""
        table = self["errors.deadletterqueue.table"]
        return self.qualified(table) if table else None

    @property
    def namespaces(self) -> set[str]:
        """Namespaces of the tables that keys name; those of dynamic routing are not known."""
        template = self.raw.get("iceberg.tables.name-template") or ""
        names = {*self.tables, *self.topic_tables.values(), self.dead_letter_table or ""}
        names.add(self.qualified(HOLE.sub("_", template)) if template else "")
        return {name.rpartition(".")[0] for name in names if name}

    @property
    def named_by_record(self) -> bool:
        """Whether tables come from records: dynamic or by template."""
        return bool(
            self.checked.values.get("iceberg.tables.dynamic-enabled")
            or self.checked.values.get("iceberg.tables.name-template")
        )

    @property
    def is_row_level(self) -> bool:
        """Whether records replace and delete rows."""
        return bool(self["iceberg.tables.upsert-mode-enabled"] or self["iceberg.tables.cdc-field"])

    def per_table(self, setting: str | None = None) -> Iterator[tuple[str, str, str]]:
        """Key, table and setting of each ``iceberg.table.<table>.<setting>``."""
        for name in self.under("iceberg.table."):
            table, _, end = name.rpartition(".")
            if table and (setting is None or end == setting):
                yield f"iceberg.table.{name}", table, end


Rule = Callable[[Given], Iterator[tuple[str, str]]]
"""Gives keys and sentences; the first line of its docstring says what it wants."""
