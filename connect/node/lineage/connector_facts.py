"""What a node knows of a connector whose run begins, from its stores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

from connect.config.reserved_topics import output_topics
from connect.errors import IcefloeError
from connect.node.herder.units.units import ConnectorRun
from connect.node.lineage.column_mapping import ColumnMapping
from connect.node.lineage.lineage_runs import ConnectorFacts
from connect.state.connector_state import StoredConnector

_BOOTSTRAP = "bootstrap.servers"
_READING = ("consumer.override.", "iceberg.kafka.")
_WRITING = ("iceberg.kafka.", "producer.override.")


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

    def servers(prefixes: tuple[str, ...], client: str) -> str:
        of_node = node.get(client + _BOOTSTRAP) or node[_BOOTSTRAP]
        overrides = (config.get(prefix + _BOOTSTRAP) for prefix in prefixes)
        addresses = next(filter(None, overrides), of_node)
        with contextlib.suppress(IcefloeError):  # the connector will fail for the same reason
            addresses = resolve(addresses)
        return addresses

    written = set()
    for topic in output_topics([config]):
        with contextlib.suppress(IcefloeError):
            written.add(resolve(topic).strip())
    layout = (run.layout if run is not None else None) or stored.layout
    topics = frozenset(tp.topic for tp in layout.partitions) if layout is not None else frozenset()
    return ConnectorFacts(
        servers(_READING, "consumer."),
        topics,
        ColumnMapping.of(config),
        is_bounded=run is not None and run.ends is not None,
        output_servers=servers(_WRITING, "producer."),
        output_topics=frozenset(written),
    )
