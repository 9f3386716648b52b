"""Which columns of a connector's tables certainly hold the record field of the same name. Pure.

Rules of this file:
- Nothing is guessed. If a transformation may rename or compute fields, no column is mapped. If the
  records of several topics may go to several tables, no topic is named.
- Only columns at the top level are mapped, with everything inside of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_KEEPING: Final = frozenset(
    {"DropHeaders", "Filter", "InsertHeader", "RegexRouter", "SetSchemaMetadata", "TimestampRouter"}
)
"""Transformations that change neither names nor values of fields."""
_INSERTED: Final = ("topic", "partition", "offset", "timestamp", "static")
_METADATA_FIELD: Final = "_kafka_metadata"


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """What is known of the columns of one connector.

    Attributes:
        is_known: no transformation renames or computes fields, except those in ``added``.
        added: columns that a transformation adds.
        prefixes: of further columns that a transformation adds.
        has_one_table: every topic goes to the same table.
    """

    is_known: bool
    added: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    has_one_table: bool = False

    @classmethod
    def of(cls, config: Mapping[str, str]) -> ColumnMapping:
        """Return what a configuration says, as it was sent."""
        added: set[str] = set()
        prefixes: list[str] = []
        tables = _listed(config.get("iceberg.tables", ""))
        is_dynamic = config.get("iceberg.tables.dynamic-enabled", "").strip().lower() == "true"
        has_one_table = len(tables) == 1 and not is_dynamic
        for alias in _listed(config.get("transforms", "")):
            prefix = f"transforms.{alias}."
            base, _, side = config.get(f"{prefix}type", "").rpartition(".")[2].partition("$")
            if side == "Key" or base in _KEEPING:
                continue
            if base == "InsertField":
                fields = (config.get(f"{prefix}{kind}.field", "") for kind in _INSERTED)
                added |= {field.strip().rstrip("!?") for field in fields}
            elif base == "KafkaMetadataTransform":
                prefixes.append(config.get(f"{prefix}field_name", _METADATA_FIELD))
            else:
                return cls(is_known=False)
        return cls(
            is_known=True,
            added=frozenset(added),
            prefixes=tuple(prefixes),
            has_one_table=has_one_table,
        )

    def identity(self, columns: Iterable[str], *, topics: int) -> tuple[str, ...]:
        """Return the columns that hold the field of their name.

        Args:
            columns: of a table, at the top level.
            topics: number of source topics.
        """
        if not self.is_known or (topics > 1 and not self.has_one_table):
            return ()
        return tuple(c for c in columns if c not in self.added and not c.startswith(self.prefixes))


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
