"""What a node knows of a connector whose run begins, from its stores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from connect.errors import IcefloeError
from connect.node.herder.units import ConnectorRun
from connect.node.lineage.column_mapping import ColumnMapping
from connect.node.lineage.lineage_runs import ConnectorFacts
from connect.state.connector_state import StoredConnector

_BOOTSTRAP = "bootstrap.servers"
_OVERRIDES = ("consumer.override.", "iceberg.kafka.")


def connector_facts(
    stored: StoredConnector,
    run: ConnectorRun | None,
    node: Mapping[str, str],
    resolve: Callable[[str], str],
) -> ConnectorFacts | None:
    """Return what lineage events say of a connector; None if it is to send none.

    Args:
        stored: its state in the config topic.
        run: what runs on this node.
        node: the node's properties, placeholders resolved.
        resolve: resolves the placeholders in a text.
    """
    config = stored.config
    if config is None or config.get("icefloe.lineage.enabled", "").strip().lower() == "false":
        return None
    overrides = (config.get(prefix + _BOOTSTRAP) for prefix in _OVERRIDES)
    servers = next(filter(None, overrides), node[_BOOTSTRAP])
    with contextlib.suppress(IcefloeError):  # the connector will fail for the same reason
        servers = resolve(servers)
    layout = (run.layout if run is not None else None) or stored.layout
    topics = frozenset(tp.topic for tp in layout.partitions) if layout is not None else frozenset()
    return ConnectorFacts(
        servers,
        topics,
        ColumnMapping.of(config),
        is_bounded=run is not None and run.ends is not None,
    )
