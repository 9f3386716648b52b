"""What an operator asks of a rewind, as it comes from the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from connect.model.layout import TopicPartition

RECORDS_GONE = "records_gone"
TABLES_UNKNOWN = "tables_unknown"
NOT_GRANTED = "not_granted"
TOPICS_SHARED = "topics_shared"


@dataclass(frozen=True, slots=True)
class RewindRequest:
    """Where a connector goes back to; one of the first four is given.

    Attributes:
        timestamp_ms: the last commit at or before this instant.
        snapshot_id: the commit that made this snapshot.
        offsets: the last commit that is above none of these source offsets.
        is_to_beginning: before the first commit of the connector.
        tables: tables to change in addition to those of configuration and announcements.
        accepted: codes of problems that the operator accepts.
        only: the only tables to change, with the topics that feed no other table; empty: all.
    """

    timestamp_ms: int | None = None
    snapshot_id: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    is_to_beginning: bool = False
    tables: tuple[str, ...] = ()
    accepted: frozenset[str] = frozenset()
    only: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Read the form of the REST API, which has validated it."""
        return cls(
            fields["timestamp_ms"],
            fields["snapshot_id"],
            {TopicPartition(t, p): at for t, p, at in fields["offsets"]},
            fields["beginning"],
            tuple(fields["tables"]),
            frozenset(fields["accept"]),
            tuple(fields.get("only", ())),
        )
