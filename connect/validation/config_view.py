"""A view of a connector's configuration for rules that combine keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from connect.config.client_overrides import split
from connect.config.key import Raw
from connect.errors import ConfigError
from connect.records.table_names import VARIABLE, topic_map
from connect.validation.key_checks import Checked, check_framework


@dataclass(frozen=True, slots=True)
class ConfigView:
    """Typed values of a configuration, and values derived from them.

    Attributes:
        raw: the configuration, as sent or resolved.
        checked: typed values by key; None for a key with an error.
    """

    raw: Raw
    checked: Checked = field(default_factory=Checked)

    @classmethod
    def of(cls, raw: Raw, own: Checked) -> ConfigView:
        """Return the view of a configuration, with the typed keys of the sink in ``own``."""
        checked = check_framework(raw)
        checked.merge(own)
        return cls(raw, checked)

    def __getitem__(self, name: str) -> Any:
        """Return the typed value of a key, or None if it is invalid or has a placeholder."""
        return None if self.has_placeholder(name) else self.checked.values.get(name)

    def has(self, name: str) -> bool:
        """Return whether the key has a value."""
        return bool(self.raw.get(name))

    def has_placeholder(self, name: str) -> bool:
        """Return whether the value contains a placeholder."""
        return "${" in (self.raw.get(name) or "")

    def under(self, prefix: str) -> dict[str, str]:
        """Return the texts of keys with a prefix."""
        return split(self.raw, prefix)

    def qualified(self, table: str) -> str:
        """Return a table name with its namespace."""
        namespace = self["iceberg.tables.default-namespace"]
        return f"{namespace}.{table}" if namespace and "." not in table else table

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the tables of ``iceberg.tables`` with namespaces."""
        return tuple(self.qualified(table) for table in self["iceberg.tables"] or ())

    @property
    def topic_tables(self) -> dict[str, str]:
        """Return the topic map, with namespaces; empty if the map is invalid."""
        try:
            entries = topic_map(self["iceberg.tables.topic-to-table-map"] or [])
        except ConfigError:
            return {}
        return {topic: self.qualified(table) for topic, table in entries.items()}

    @property
    def dead_letter_table(self) -> str | None:
        """Return the dead letter table with its namespace."""
        table = self["errors.deadletterqueue.table"]
        return self.qualified(table) if table else None

    @property
    def namespaces(self) -> set[str]:
        """Return the namespaces of configured tables, without those of dynamic routing."""
        template = self.raw.get("iceberg.tables.name-template") or ""
        names = {*self.tables, *self.topic_tables.values(), self.dead_letter_table or ""}
        names.add(self.qualified(VARIABLE.sub("_", template)) if template else "")
        return {name.rpartition(".")[0] for name in names if name}

    @property
    def named_by_record(self) -> bool:
        """Return whether records determine the tables: dynamic or by template."""
        return bool(
            self.checked.values.get("iceberg.tables.dynamic-enabled")
            or self.checked.values.get("iceberg.tables.name-template")
        )

    @property
    def is_row_level(self) -> bool:
        """Return whether records replace or delete rows."""
        return bool(self["iceberg.tables.upsert-mode-enabled"] or self["iceberg.tables.cdc-field"])

    def per_table(self, setting: str | None = None) -> Iterator[tuple[str, str, str]]:
        """Yield key, table and setting of each ``iceberg.table.<table>.<setting>``."""
        for name in self.under("iceberg.table."):
            table, _, end = name.rpartition(".")
            if table and (setting is None or end == setting):
                yield f"iceberg.table.{name}", table, end


Rule = Callable[[ConfigView], Iterator[tuple[str, str]]]
"""Yields keys and messages. Its docstring states the rule for the documentation."""
