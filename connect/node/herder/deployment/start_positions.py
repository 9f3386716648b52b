"""Fixes the start offsets of a new connector (``icefloe.start.timestamp``) before its first task.

Rules of this file:
- The offsets are stored in the config topic when all older tasks are fenced, and before the layout
  is ready. So every task of the connector starts at them, whenever it starts.
- A connector with a committed offset, or that has had one (source floor), is not new. Its fixed
  offsets stay as they are, and partitions that appear later have none.
- As long as nothing is committed, each new layout fixes the offsets again: nothing was read.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from connect.config.connector import ConnectorConfig
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.model.layout import Layout
from connect.state.config_store import ConfigStore

_log = logger("herder")
_SHOWN_MAX = 50


class StartPositions:
    """Start offsets of new connectors; used by the leader.

    Args:
        store: source floors, which contain the start offsets.
        admin: the cluster.
        changing: held while source floors are read and written.
    """

    def __init__(self, store: ConfigStore, admin: KafkaAdmin, changing: threading.Lock) -> None:
        self._store = store
        self._admin = admin
        self._changing = changing

    def fix(self, config: ConnectorConfig, layout: Layout) -> None:
        """Store the start offsets of a connector, if it is new and its configuration asks for it.

        Args:
            config: the connector.
            layout: the layout that becomes ready; all tasks of older layouts are fenced.

        Raises:
            Fenced: another node leads.
            RetriableError: the broker cannot be reached.
        """
        timestamp_ms = config.start.timestamp_ms
        with self._changing:
            floor = self._store.get(config.name).source_floor
            if floor.offsets or (timestamp_ms is None and not floor.starts):
                return
            if any(self._admin.committed_all(group) for group in config.member_groups):
                return
            starts, ids = {}, {}
            if timestamp_ms is not None:
                ids = self._admin.topic_ids({tp.topic for tp in layout.partitions})
                existing = [tp for tp in layout.partitions if tp.topic in ids]
                starts = self._admin.offsets_at(existing, timestamp_ms)
            if starts != floor.starts:
                self._store.put_source_floor(
                    config.name, replace(floor, starts=starts, topic_ids=ids)
                )
        displayed = sorted(starts.items())[:_SHOWN_MAX]
        _log.info(
            "start offsets fixed",
            connector=config.name,
            timestamp_ms=timestamp_ms,
            positions={f"{tp.topic}-{tp.partition}": offset for tp, offset in displayed},
        )
