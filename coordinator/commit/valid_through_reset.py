"""Takes back what tables claim of a connector's VTTS, because an operator says so.

Rules of this file:
- A claim is taken back by a snapshot without files. It carries the connector's control offsets as
  they were, and the operator's reason; no claim of an older snapshot counts behind it.
- Only tables that the connector writes to, and that hold a claim of it, are touched.
- The connector is stopped meanwhile, so nobody else commits under its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, IcefloeError
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.control_offsets import offsets_text
from coordinator.commit.commit_attempt import CommitAttempts, StagedSnapshot, WaitingClock
from coordinator.commit.file_selection import Selection
from coordinator.commit.floor import RESET_PROPERTY, floor_keys, table_state
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
    """Show which tables hold a claim and, where asked, take it back.

    Args:
        catalog: where they are.
        config: the connector.
        tables: their names.
        reason: the operator's, kept in each snapshot.
        clock: time, identities, waiting.
        is_applied: False only reads.

    Returns:
        A JSON object for each table: its name, ``claims`` as they stand there, the ``snapshot_id``
        that takes them back (None: none was made), ``code`` and ``message`` of a failure.
    """
    return [_reset(catalog, config, name, reason, clock, is_applied=is_applied) for name in tables]


def _reset(
    catalog: CatalogGateway,
    config: ConnectorConfig,
    name: str,
    reason: str,
    clock: WaitingClock,
    *,
    is_applied: bool,
) -> dict[str, Any]:
    displayed: dict[str, Any] = {
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
        state = table_state(table.metadata, keys)
        displayed["claims"] = sorted(set(state.valid_through_texts))
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
            displayed["snapshot_id"] = content.snapshot_id
    except IcefloeError as error:
        displayed |= {"code": error.code, "message": str(error)}
    return displayed
