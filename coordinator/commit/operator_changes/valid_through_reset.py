"""Resets the VTTS that tables claim for a connector, at an operator's request.

Rules of this file:
- A snapshot without files resets the claim. It carries the connector's control offsets unchanged,
  and the operator's reason. Claims of older snapshots do not count after it.
- Only tables that the connector writes to are changed.
- The connector is stopped and its tasks are fenced. A coordinator that is frozen may continue after
  the reset. So each table also stores how far the control topic reached at the reset, and a round
  that read no further claims nothing. A table without a claim gets the snapshot as well: an older
  commit that is under way would conflict with it.
- A table may have a lost floor and no claim. A frozen coordinator that has made no round yet takes
  that floor for empty. So the table gets a snapshot without control offsets: its floor stays
  unknown.
- A commit of such a coordinator may come between. The floor is then read again: it never goes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.control_offsets import covers, merged, offsets_text
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.iceberg.floor import (
    RESET_PROPERTY,
    FloorKeys,
    TableState,
    floor_keys,
    table_state,
)
from coordinator.commit.iceberg.snapshots import SnapshotContent
from coordinator.commit.operator_changes.empty_snapshot import EmptySnapshot
from coordinator.commit.operator_changes.table_result import table_result
from coordinator.commit.rules.file_selection import Selection


def reset_claims(
    catalog: CatalogGateway,
    config: ConnectorConfig,
    tables: Iterable[str],
    reason: str,
    clock: WaitingClock,
    *,
    control_ends: Mapping[int, int],
    is_applied: bool,
) -> list[dict[str, Any]]:
    """Return which tables hold a claim and, if requested, reset it.

    Args:
        catalog: where they are.
        config: the connector.
        tables: their names.
        reason: the operator's, kept in each snapshot.
        clock: time, identities, waiting.
        control_ends: end offsets of the control topic, read while the connector was stopped.
        is_applied: False only reads.

    Returns:
        A JSON object for each table: its name, ``claims`` as the table holds them, the
        ``snapshot_id`` that resets them (None: none was made), ``code`` and ``message`` of a
        failure.
    """
    reset = _Reset(catalog, config, reason, clock, control_ends)
    return [reset.report(name, is_applied=is_applied) for name in tables]


def state_to_reset(metadata: TableMetadata, keys: FloorKeys) -> tuple[TableState, bool]:
    """Return the state of a table, and whether its floor is known.

    A lost floor means that no kept snapshot is the connector's. Then only the property can claim.

    Raises:
        CommitRefused: as ``table_state``; ``floor_lost`` only where the property claims.
    """
    try:
        return table_state(metadata, keys), True
    except CommitRefused as refusal:
        if refusal.code != "floor_lost" or metadata.properties.get(keys.valid_through_mirror):
            raise
        return table_state(metadata, replace(keys, has_history=False)), False


@dataclass(frozen=True, slots=True)
class _Reset:
    """One reset of a connector's claims; arguments as ``reset_claims``."""

    catalog: CatalogGateway
    config: ConnectorConfig
    reason: str
    clock: WaitingClock
    control_ends: Mapping[int, int]

    def report(self, name: str, *, is_applied: bool) -> dict[str, Any]:
        """Read or reset one table; return its object of the answer."""
        claims: list[str] = []
        result = table_result(name, lambda: self._reset(name, claims, is_applied=is_applied))
        return result | {"claims": claims}

    def _reset(self, name: str, claims: list[str], *, is_applied: bool) -> int | None:
        """Add the table's claims to ``claims``; return the id of the snapshot that resets them."""
        if not self.config.may_write(name):
            raise CommitRefused(
                "the connector does not write to this table", code="table_not_configured"
            )
        keys = floor_keys(self.config, name)

        def content_of(table: Table, state: TableState) -> SnapshotContent | None:
            texts = state.valid_through_texts
            if not claims:  # of the first attempt: a later one may read the table after its reset
                claims.extend(sorted(set(texts)))
            is_reset = not texts and covers(state.reset_offsets, self.control_ends)
            if not is_applied or is_reset:
                return None
            _, has_floor = state_to_reset(table.metadata, keys)
            return self._content(keys, state, has_floor=has_floor)

        return EmptySnapshot(
            self.catalog,
            self.clock,
            keys,
            find=lambda: self.catalog.load(name.split(".")),
            state_of=lambda table: state_to_reset(table.metadata, keys)[0],
            content_of=content_of,
        ).commit()

    def _content(self, keys: FloorKeys, state: TableState, *, has_floor: bool) -> SnapshotContent:
        offsets = offsets_text(state.floor)
        summary = {"engine-name": "icefloe", RESET_PROPERTY: self.reason}
        properties = {
            keys.valid_through_mirror: "",
            keys.reset_mirror: offsets_text(merged(state.reset_offsets, self.control_ends)),
        }
        if has_floor:
            summary[keys.summary] = properties[keys.mirror] = offsets
        return SnapshotContent(
            self.clock.new_snapshot_id(),
            str(self.clock.new_uuid()),
            Selection(()),
            summary,
            properties,
        )
