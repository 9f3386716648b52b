"""Commits a rewind to tables: each goes back to its snapshot, once, or not at all.

Rules of this file:
- One conditional commit per table sets the branch to a new snapshot whose parent is the one to go
  back to. It adds no file. It stores the present end of the control topic as the floor, so nothing
  that was announced before the rewind is ever committed again.
- The commit needs the branch as it was loaded: a late commit of a coordinator that was killed
  either is found and removed too, or is refused by the catalog.
- The commit also needs the branch that keeps the history of the rewind. It is removed when the
  rewind ends, so a process that was frozen changes nothing afterwards.
- Each table stores how far the control topic reached, as a VTTS reset does. A coordinator that was
  frozen may continue, and a round of it that read no further claims nothing.
- The snapshot carries the identity of the rewind. A table that has it is done, so the command may
  be repeated after a crash.
- Snapshots that left the branch stay in the table until they expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

from pyiceberg.table import Table

from connect import failpoints
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.control_offsets import merged, offsets_text
from connect.protocol.snapshot_ancestry import REWIND_PROPERTY
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.iceberg.floor import (
    VALID_THROUGH_PROPERTY,
    FloorKeys,
    TableState,
    table_state,
)
from coordinator.commit.iceberg.snapshots import SnapshotContent
from coordinator.commit.operator_changes.empty_snapshot import EmptySnapshot
from coordinator.commit.operator_changes.table_result import table_result
from coordinator.commit.rules.file_selection import Selection
from coordinator.rewind.recorded_rewind import RecordedRewind
from coordinator.rewind.table_history import Rollback


class _AlreadyRewound(CommitRefused):
    """The table holds the snapshot of this rewind."""

    default_code = "already_rewound"

    def __init__(self, snapshot_id: int) -> None:
        super().__init__("the table is done")
        self.snapshot_id = snapshot_id


@dataclass(frozen=True, slots=True)
class TableRollback:
    """A rewind, as it is applied to the tables of a connector.

    Attributes:
        catalog: where the tables are.
        rewind: what was recorded. Each table has its branch (``keep_history``).
        clock: time, identities, waiting.
        control_ends: control partition -> present end of the control topic.
        control_topic_id: id of the control topic, stored in each table.
    """

    catalog: CatalogGateway
    rewind: RecordedRewind
    clock: WaitingClock
    control_ends: Mapping[int, int]
    control_topic_id: str | None

    def apply(self, targets: Mapping[str, int | None]) -> list[dict[str, Any]]:
        """Take tables back.

        Args:
            targets: table -> id of the snapshot whose rows remain; None empties the table.

        Returns:
            A JSON object for each table: its name, the ``snapshot_id`` that the branch got (None
            for a table that does not exist), ``code`` and ``message`` of a failure.
        """
        done: list[dict[str, Any]] = []
        for name, target_id in sorted(targets.items()):
            if done:
                failpoints.hit("B3")
            done.append(table_result(name, partial(self._apply, name, target_id)))
        return done

    def _apply(self, name: str, target_id: int | None) -> int | None:
        keys = self.rewind.keys(name)
        try:
            return EmptySnapshot(
                self.catalog,
                self.clock,
                keys,
                find=lambda: self.catalog.find(name),
                state_of=lambda table: self._state(table, keys, target_id),
                content_of=lambda table, state: self._content(
                    keys, self._plan(table, keys, target_id), state
                ),
            ).commit()
        except _AlreadyRewound as done:
            return done.snapshot_id

    def _plan(self, table: Table, keys: FloorKeys, target_id: int | None) -> Rollback:
        done = self.rewind.snapshot_in(table.metadata, keys)
        if done is not None:
            raise _AlreadyRewound(done)
        return self.rewind.checked(table.metadata, keys, target_id)

    def _state(self, table: Table, keys: FloorKeys, target_id: int | None) -> TableState:
        """Return the state of the table with the target as its head.

        Raises:
            CommitRefused: ``rewind_ended``, or as ``RecordedRewind.checked``.
        """
        plan = self._plan(table, keys, target_id)
        state = table_state(table.metadata, keys)
        if plan.head is None:
            return state
        fence = self.rewind.fence
        kept = table.metadata.refs.get(fence)
        if kept is None:
            raise CommitRefused(
                f"{fence}, which keeps the history of this rewind, is missing: the rewind "
                "was cancelled, is repeated, or the reference was removed; repeat the command",
                code="rewind_ended",
            )
        state = replace(state, required_refs={fence: kept.snapshot_id})
        return replace(state, head=plan.target, replaced=plan.head) if plan.removed else state

    def _content(self, keys: FloorKeys, plan: Rollback, state: TableState) -> SnapshotContent:
        floor = offsets_text(merged(state.floor, self.control_ends))
        marks = {
            keys.summary: floor,
            "engine-name": "icefloe",
            "engine-version": version("icefloe"),
            REWIND_PROPERTY: self.rewind.rewind_id,
        }
        if plan.valid_through is not None:
            marks[VALID_THROUGH_PROPERTY] = plan.valid_through
        properties = {
            keys.mirror: floor,
            keys.valid_through_mirror: plan.valid_through or "",
            keys.reset_mirror: offsets_text(merged(state.reset_offsets, self.control_ends)),
        }
        if self.control_topic_id is not None:
            properties[self.rewind.config.topic_id_property] = self.control_topic_id
        return SnapshotContent(
            self.clock.new_snapshot_id(),
            str(self.clock.new_uuid()),
            Selection(()),
            marks,
            properties,
        )
