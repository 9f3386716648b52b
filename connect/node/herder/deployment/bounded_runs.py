"""Bounded runs: the leader fixes where a run ends, and records that it is complete.

Rules of this file:
- The end offsets of a partition are fixed once in a run. A changed list of topics adds partitions
  and keeps the end offsets of the others.
- A run is complete when the connector's coordinator has reported it: every partition is read to its
  end, and every file is in its table. The report belongs to one layout.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from connect.config.connector import ConnectorConfig
from connect.config.end_position import EndPosition
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.logs import logger
from connect.model.layout import TopicPartition
from connect.protocol.source_end import END_KEY, SourceEnd, selection_of
from connect.protocol.source_partitions import source_partitions
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.status_store import StatusStore

_log = logger("herder")


class BoundedRuns:
    """The bounded runs of all connectors; written by the leader only.

    Args:
        store: where the end of each run is kept.
        statuses: the reports of coordinators.
        admin: the cluster, with the node's own properties.
    """

    def __init__(self, store: ConfigStore, statuses: StatusStore, admin: KafkaAdmin) -> None:
        self._store = store
        self._statuses = statuses
        self._admin = admin

    def is_reported(self, state: StoredConnector) -> bool:
        """Return whether the run that is stored as unfinished was reported as complete."""
        if state.end is None or not state.is_to_run:
            return False
        number = state.layout.number if state.layout is not None else None
        running = self._statuses.running(state.name).values()
        has_report = any(
            running_unit.is_completed and running_unit.layout == number for running_unit in running
        )
        return has_report and state.end.is_of(state.config or {})

    def complete(self, state: StoredConnector) -> StoredConnector:
        """Record that a run is complete, if it was reported; return the present state.

        Raises:
            Fenced: another node leads.
        """
        if not self.is_reported(state):
            return state
        assert state.end is not None, "a reported run has an end"
        self._store.put_end(state.name, state.end.completed_with(state.config or {}))
        _log.info("bounded run completed", connector=state.name)
        return self._store.get(state.name)

    def fix(
        self,
        state: StoredConnector,
        config: ConnectorConfig,
        topics: Mapping[str, int],
        reserved: frozenset[str],
    ) -> StoredConnector:
        """Fix the end offsets of a run that has none; return the present state.

        Args:
            state: the connector.
            config: its configuration.
            topics: partition count of every topic of the cluster.
            reserved: topics that no connector may read.

        Raises:
            ConfigError: ``end_topic_missing``.
            Fenced: another node leads.
            RetriableError: the broker cannot be reached.
        """
        raw, end = state.config or {}, state.end
        if config.end is None:
            if end is not None:
                self._store.put_end(state.name, None)
        elif end is None or end.completed is not None or not end.is_of(raw):
            is_same_run = end is not None and end.completed is None
            is_same_end = end is not None and end.selection.get(END_KEY) == raw.get(END_KEY)
            fixed_ends = end.offsets if end is not None and is_same_run and is_same_end else {}
            partitions = source_partitions(config, topics, excluded=reserved)
            missing = sorted(set(config.topics) - topics.keys())
            if missing or not partitions:
                raise ConfigError(
                    f"{'topic ' + missing[0] if missing else 'a topic of topics.regex'} does not "
                    f"exist, so {END_KEY} has no end offsets; create the topic, then restart the "
                    "connector",
                    code="end_topic_missing",
                    connector=state.name,
                )
            new = [tp for tp in partitions if tp not in fixed_ends]
            offsets = self._end_offsets(config.end, new)
            remaining = {tp: fixed_ends[tp] for tp in partitions if tp in fixed_ends}
            self._store.put_end(state.name, SourceEnd(selection_of(raw), {**remaining, **offsets}))
            _log.info("end of the run fixed", connector=state.name, partitions=len(partitions))
        else:
            return state
        return self._store.get(state.name)

    def _end_offsets(
        self, end: EndPosition, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the end of each partition.

        It is the high watermark, not the last stable offset: records that were committed above an
        open transaction are part of the run.
        """
        ends = self._admin.high_watermarks(partitions)
        if end.timestamp_ms is not None:
            first_offsets = self._admin.first_since(partitions, end.timestamp_ms)
            ends |= {tp: offset for tp, offset in first_offsets.items() if offset is not None}
        return ends
