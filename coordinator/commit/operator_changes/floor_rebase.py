"""Restores the floor of tables that lost it, at an operator's request.

Rules of this file:
- Only tables that the connector may write are read; the answer says nothing about another table.
- Only tables whose floor is lost are touched; the group's control offsets become their floor:
  everything announced below them was committed or given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, IcefloeError
from connect.gateways.catalog.catalog import CatalogGateway
from connect.protocol.control_offsets import offsets_text
from coordinator.commit.iceberg.floor import floor_keys, table_state


def restore_floors(
    catalog: CatalogGateway,
    config: ConnectorConfig,
    tables: Iterable[str],
    offsets: Mapping[int, int],
    *,
    is_applied: bool,
) -> list[dict[str, Any]]:
    """Read tables and, where the floor is lost, set one.

    Args:
        catalog: where they are.
        config: the connector.
        tables: their names.
        offsets: control partition -> next control offset of the connector's control group.
        is_applied: False only reads.

    Returns:
        A JSON object for each table: its name, ``code`` (None: nothing is wrong), ``message``,
        and whether the floor was set.
    """
    return [_restore(catalog, config, name, offsets, is_applied=is_applied) for name in tables]


def _restore(
    catalog: CatalogGateway,
    config: ConnectorConfig,
    name: str,
    offsets: Mapping[int, int],
    *,
    is_applied: bool,
) -> dict[str, Any]:
    keys = floor_keys(config, name)
    reported: dict[str, Any] = {"table": name, "code": None, "message": None, "mended": False}
    if not config.may_write(name):
        message = f"connector {config.name} may not write {name}: name its own tables only"
        return reported | {"code": "not_granted", "message": message}
    try:
        table = catalog.load(name.split("."))
        try:
            table_state(table.metadata, keys)
        except CommitRefused as lost:
            reported |= {"code": lost.code, "message": lost.message}
            if lost.code == "floor_lost" and is_applied:
                update = SetPropertiesUpdate(updates={keys.mirror: offsets_text(offsets)})
                uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
                catalog.commit(table, (uuid,), (update,))
                reported["mended"] = True
    except IcefloeError as e:
        reported |= {"code": e.code, "message": str(e)}
    return reported
