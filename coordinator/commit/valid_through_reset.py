"""Resets the VTTS that tables claim for a connector, at an operator's request.

Rules of this file:
- A snapshot without files resets the claim. It carries the connector's control offsets unchanged,
  and the operator's reason. Claims of older snapshots do not count after it.
- Only tables that the connector writes to, and that hold a claim of it, are changed.
- The connector is stopped, so no other process commits under its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, IcefloeError
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.control_offsets import offsets_text
from coordinator.commit.commit_attempt import CommitAttempts, StagedSnapshot, WaitingClock
from coordinator.commit.file_selection import Selection
from coordinator.commit.floor import RESET_PROPERTY, FloorKeys, floor_keys, table_state
from coordinator.commit.prepared_manifests import PreparedManifests
from coordinator.commit.snapshots import Content


def reset_claims(
    catalog: CatalogGateway,
    config: ConnectorConfig,
    tables: Iterable[str],
    reason: str,
    clock: WaitingClock,
    *,
    is_applied: bool,
) -> list[dict[str, Any]]:
    """Return which tables hold a claim and, if requested, reset it.

    Args:
        catalog: where they are.
        config: the connector.
        tables: their names.
        reason: the operator's, kept in each snapshot.
        clock: time, identities, waiting.
        is_applied: False only reads.

    Returns:
        A JSON object for each table: its name, ``claims`` as the table holds them, the
        ``snapshot_id`` that resets them (None: none was made), ``code`` and ``message`` of a
        failure.
    """
    return [_reset(catalog, config, name, reason, clock, is_applied=is_applied) for name in tables]


def has_no_claim(refusal: CommitRefused, properties: Mapping[str, str], keys: FloorKeys) -> bool:
    """Whether a table of unknown floor certainly holds no claim.

    A lost floor means that no kept snapshot is the connector's; only the property can claim.
    """
    return refusal.code == "floor_lost" and not properties.get(keys.valid_through_mirror)


def _reset(
    catalog: CatalogGateway,
    config: ConnectorConfig,
    name: str,
    reason: str,
    clock: WaitingClock,
    *,
    is_applied: bool,
) -> dict[str, Any]:
    reported: dict[str, Any] = {
        "table": name,
        "claims": [],
        "snapshot_id": None,
        "code": None,
        "message": None,
    }
    keys = floor_keys(config, name)
    try:
        if not config.may_write(name):
            raise CommitRefused(
                "the connector does not write to this table", code="table_not_configured"
            )
        table = catalog.load(name.split("."))
        try:
            state = table_state(table.metadata, keys)
        except CommitRefused as refusal:
            if has_no_claim(refusal, table.properties, keys):
                return reported
            raise
        reported["claims"] = sorted(set(state.valid_through_texts))
        if is_applied and state.valid_through_texts:
            offsets = offsets_text(state.floor)
            content = Content(
                clock.new_snapshot_id(),
                str(clock.new_uuid()),
                Selection(()),
                {keys.summary: offsets, "engine-name": "icefloe", RESET_PROPERTY: reason},
                {keys.mirror: offsets, keys.valid_through_mirror: ""},
            )
            identifier = tuple(name.split("."))
            snapshot = StagedSnapshot(clock, keys, content, None, PreparedManifests())
            CommitAttempts(
                catalog, identifier, clock, snapshot, lambda t: table_state(t.metadata, keys)
            ).commit(table, state)
            reported["snapshot_id"] = content.snapshot_id
    except IcefloeError as error:
        reported |= {"code": error.code, "message": str(error)}
    return reported
