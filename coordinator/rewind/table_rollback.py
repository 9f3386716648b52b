"""Commits a rewind to tables: each goes back to its snapshot, once, or not at all.

Rules of this file:
- One conditional commit per table sets the branch to a new snapshot whose parent is the one to go
  back to. It adds no file. It stores the present end of the control topic as the floor, so nothing
  that was announced before the rewind is ever committed again.
- The commit needs the branch as it was loaded: a late commit of a coordinator that was killed
  either is found and removed too, or is refused by the catalog.
- The floor and the control offsets of the last VTTS reset never go back. When either changed after
  the table was read, the table is read again.
- Each table stores how far the control topic reached, as a VTTS reset does. A coordinator that was
  frozen may continue, and a round of it that read no further claims nothing.
- The snapshot carries the identity of the rewind. A table that has it is done, so the command may
  be repeated after a crash.
- Snapshots that left the branch stay in the table until they expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from pyiceberg.table import Table

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, IcefloeError, RetriableError
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.control_offsets import merged, offsets_text
from connect.protocol.snapshot_ancestry import REWIND_PROPERTY, ancestry, summary
from coordinator.commit.commit_attempt import CommitAttempts, StagedSnapshot, WaitingClock
from coordinator.commit.file_selection import Selection
from coordinator.commit.floor import (
    VALID_THROUGH_PROPERTY,
    FloorKeys,
    TableState,
    floor_keys,
    table_state,
)
from coordinator.commit.prepared_manifests import PreparedManifests
from coordinator.commit.snapshots import Content
from coordinator.rewind.table_history import Rollback, rollback

HISTORY_CHANGED = "history_changed"
RESTARTS_MAX = 3


class _AlreadyRewound(CommitRefused):
    """The table holds the snapshot of this rewind."""

    default_code = "already_rewound"


class _FloorChanged(RetriableError):  # noqa: N818 - the field's term
    """The table's floor or VTTS reset is not the one that the snapshot was made for."""

    default_code = "floor_moved"


@dataclass(frozen=True, slots=True)
class TableRollback:
    """A rewind, as it is applied to the tables of a connector.

    Attributes:
        catalog: where the tables are.
        config: the connector.
        clock: time, identities, waiting.
        rewind_id: identity of the rewind.
        cut: control offsets to go back to; None takes out every commit of the connector.
        control_ends: control partition -> present end of the control topic.
        control_topic_id: id of the control topic, stored in each table.
        may_have_expired: see ``rollback``.
    """

    catalog: CatalogGateway
    config: ConnectorConfig
    clock: WaitingClock
    rewind_id: str
    cut: Mapping[int, int] | None
    control_ends: Mapping[int, int]
    control_topic_id: str | None
    may_have_expired: bool

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
            done.append(self._apply(name, target_id))
        return done

    def _apply(self, name: str, target_id: int | None) -> dict[str, Any]:
        reported: dict[str, Any] = {
            "table": name,
            "snapshot_id": None,
            "code": None,
            "message": None,
        }
        try:
            for left in range(RESTARTS_MAX, -1, -1):
                table = self.catalog.find(name)
                if table is None:
                    break
                try:
                    reported["snapshot_id"] = self._commit(name, table, target_id)
                    break
                except _FloorChanged:
                    if not left:
                        raise
        except IcefloeError as error:
            reported |= {"code": error.code, "message": str(error)}
        return reported

    def _commit(self, name: str, table: Table, target_id: int | None) -> int:
        keys = floor_keys(self.config, name)
        try:
            plan = self._checked(table, keys, target_id)
            state = _on_target(table, keys, plan)
            content = self._content(keys, plan, state)
            snapshot = StagedSnapshot(self.clock, keys, content, None, PreparedManifests())

            def check(reloaded: Table) -> TableState:
                seen = _on_target(reloaded, keys, self._checked(reloaded, keys, target_id))
                if (seen.floor, seen.reset_offsets) != (state.floor, state.reset_offsets):
                    raise _FloorChanged(
                        "the table's control offsets moved during the rewind; repeat the command"
                    )
                return seen

            CommitAttempts(
                self.catalog, tuple(name.split(".")), self.clock, snapshot, check
            ).commit(table, state)
        except _AlreadyRewound as done:
            found: int = done.coordinates["snapshot_id"]
            return found
        return content.snapshot_id

    def _checked(self, table: Table, keys: FloorKeys, target_id: int | None) -> Rollback:
        """Return what is to be done to the table, which must be what was planned.

        Raises:
            CommitRefused: ``history_changed``, or as ``rollback``.
        """
        for snapshot in ancestry(table.metadata, keys.branch):
            if summary(snapshot).get(REWIND_PROPERTY) == self.rewind_id:
                raise _AlreadyRewound("the table is done", snapshot_id=snapshot.snapshot_id)
        plan = rollback(table.metadata, keys, self.cut, may_have_expired=self.may_have_expired)
        if plan.target_id != target_id:
            raise CommitRefused(
                f"the table would go back to snapshot {plan.target_id} now, the plan was "
                f"{target_id}: its history was changed meanwhile",
                code=HISTORY_CHANGED,
            )
        return plan

    def _content(self, keys: FloorKeys, plan: Rollback, state: TableState) -> Content:
        floor = offsets_text(merged(state.floor, self.control_ends))
        marks = {
            keys.summary: floor,
            "engine-name": "icefloe",
            "engine-version": version("icefloe"),
            REWIND_PROPERTY: self.rewind_id,
        }
        if plan.valid_through is not None:
            marks[VALID_THROUGH_PROPERTY] = plan.valid_through
        properties = {
            keys.mirror: floor,
            keys.valid_through_mirror: plan.valid_through or "",
            keys.reset_mirror: offsets_text(merged(state.reset_offsets, self.control_ends)),
        }
        if self.control_topic_id is not None:
            properties[self.config.topic_id_property] = self.control_topic_id
        return Content(
            self.clock.new_snapshot_id(),
            str(self.clock.new_uuid()),
            Selection(()),
            marks,
            properties,
        )


def _on_target(table: Table, keys: FloorKeys, plan: Rollback) -> TableState:
    state = table_state(table.metadata, keys)
    if not plan.removed:
        return state
    return replace(state, head=plan.target, replaced=plan.head)
