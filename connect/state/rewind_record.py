"""A rewind that an operator requested, and its record in the config topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from connect.model.layout import TopicPartition


@dataclass(frozen=True, slots=True)
class RewindChoice:
    """Where a connector goes back to; without a place, a rewind that was begun is meant.

    Attributes:
        timestamp_ms: the last commit at or before this instant.
        snapshot_id: the commit that made this snapshot.
        offsets: the last commit that is above none of these source offsets.
        is_to_beginning: before the first commit of the connector.
        tables: in addition to those of configuration and announcements.
        only: the only tables to change, with the topics that feed no other table; empty: all.
        accepted: codes of problems that the operator accepts.
        is_cancelled: cancel a rewind that was begun.
        is_replacing: begin this rewind in place of one that was begun.
    """

    timestamp_ms: int | None = None
    snapshot_id: int | None = None
    offsets: Sequence[tuple[str, int, int]] = ()
    is_to_beginning: bool = False
    tables: Sequence[str] = ()
    only: Sequence[str] = ()
    accepted: Sequence[str] = ()
    is_cancelled: bool = False
    is_replacing: bool = False

    @property
    def has_place(self) -> bool:
        """Whether it names where to go back to."""
        is_given = self.timestamp_ms is not None or self.snapshot_id is not None
        return is_given or bool(self.offsets) or self.is_to_beginning

    def to_json(self) -> dict[str, Any]:
        """Return the form of the REST API, of the record and of the coordinator's command."""
        return {
            "timestamp_ms": self.timestamp_ms,
            "snapshot_id": self.snapshot_id,
            "offsets": [list(at) for at in self.offsets],
            "beginning": self.is_to_beginning,
            "tables": list(self.tables),
            "only": list(self.only),
            "accept": list(self.accepted),
            "cancel": self.is_cancelled,
            "replace": self.is_replacing,
        }


@dataclass(frozen=True, slots=True)
class RewindRecord:
    """A rewind that has begun and is not done.

    Attributes:
        id: identity of the rewind, in the snapshots that it makes.
        group: consumer group whose offsets it sets.
        asked: JSON of the choice of the operator.
        commit: JSON of the commit to go back to; None is before the first one.
        tables: snapshot to go back to by table; None removes every commit of the connector.
        offsets: source offsets to set.
        may_have_expired: the operator accepts that a table has lost its history.
        replaced: ids of the unfinished rewinds that it replaced.
        step: the last one that was begun.
        attempt: identity of the present attempt to finish it; never stored.
    """

    id: str
    group: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)
    commit: Mapping[str, Any] | None = None
    tables: Mapping[str, int | None] = field(default_factory=dict)
    offsets: Sequence[tuple[str, int, int]] = ()
    may_have_expired: bool = False
    replaced: Sequence[str] = ()
    step: str = "recorded"
    attempt: str = ""

    @property
    def ids(self) -> list[str]:
        """Its id, after those of the rewinds that it replaced."""
        return [*self.replaced, self.id]

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The source offsets by partition."""
        return {TopicPartition(topic, partition): at for topic, partition, at in self.offsets}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Decode a record; what is missing has its default, so that any record stops the start."""
        return cls(
            str(value.get("id")),
            str(value.get("group")),
            value.get("asked") or {},
            value.get("commit"),
            value.get("tables") or {},
            tuple((topic, partition, at) for topic, partition, at in value.get("offsets") or ()),
            may_have_expired=value.get("may_have_expired") is True,
            replaced=tuple(value.get("replaced") or ()),
            step=str(value.get("step") or "recorded"),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form of the record and of the coordinator's command."""
        return {
            "id": self.id,
            "group": self.group,
            "asked": dict(self.asked),
            "commit": self.commit,
            "cut": None if self.commit is None else self.commit["control_offsets"],
            "tables": dict(self.tables),
            "offsets": [list(at) for at in self.offsets],
            "may_have_expired": self.may_have_expired,
            "replaced": list(self.replaced),
            "step": self.step,
            **({"attempt": self.attempt} if self.attempt else {}),
        }
