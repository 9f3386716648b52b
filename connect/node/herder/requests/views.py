"""Views of a connector below ``/icefloe/v1``, which Kafka Connect does not have.

Rules of this file:
- Numbers come from the metrics and rounds that this node last received. After a restart of the
  node they begin again. Offsets come from the broker, in bounded time.
- No content of a record is shown: of a dead letter, its coordinates and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from connect.clock import Clock
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.metrics.process_metrics import Exposition
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.request_errors import reachable
from connect.node.herder.units.units import ConnectorRun
from connect.node.herder_api import NotAllowedError, View
from connect.operations.audit.auditor import audit
from connect.operations.connector_clients import ConnectorClients
from connect.operations.orphan_age import OrphanAgeReport, oldest_of, orphan_age
from connect.records.dead_letter import origin
from connect.state.connector_state import StoredConnector

DEAD_LETTERS_SHOWN = 20
DEAD_LETTERS_TIMEOUT_MS = 5_000
REASON_CHARS = 500


class Views:
    """Views of connectors.

    Args:
        run_of: returns the observed state of a connector on this node.
        configs: stored configurations, typed.
        admin: offsets.
        reader_properties: Java-named consumer properties, for the dead letter topic.
        opened: clients for a connector's configuration and the reserved topics, its catalog
            among them.
        exposition: metrics.
        clock: for time limits.
        maintenance_of: returns the view of a connector's maintenance.
    """

    def __init__(
        self,
        *,
        run_of: Callable[[str], ConnectorRun | None],
        configs: ConnectorConfigs,
        admin: KafkaAdmin,
        reader_properties: Mapping[str, str],
        opened: Callable[
            [Mapping[str, str], frozenset[str]], AbstractContextManager[ConnectorClients]
        ],
        exposition: Exposition,
        clock: Clock,
        maintenance_of: Callable[[str], Mapping[str, Any]],
    ) -> None:
        self._maintenance_of = maintenance_of
        self._run_of = run_of
        self._configs = configs
        self._admin = admin
        self._reader_properties = reader_properties
        self._opened = opened
        self._exposition = exposition
        self._clock = clock

    def show(self, state: StoredConnector, kind: View) -> Mapping[str, Any]:
        """Return one view as a JSON object.

        Raises:
            NotAllowedError: the connector's configuration is not valid, or the broker refuses.
            UnavailableError: the broker cannot be reached.
        """
        run = self._run_of(state.name)
        view: Mapping[str, Any]
        match kind:
            case "rounds":
                rounds = list(run.reports.rounds) if run is not None else []
                view = {"rounds": rounds, "answered": self._is_answered(state, run)}
            case "tables":
                view = {"tables": run.reports.tables() if run is not None else []}
            case "lag":
                view = self._lag(state)
            case "dead-letters":
                view = self._dead_letters(state)
            case "maintenance":
                view = self._maintenance_of(state.name)
            case "orphan-age":
                view = self._orphan_age(state)
            case "audit":
                view = self._audit(state)
        return {"connector": state.name, **view}

    def _is_answered(self, state: StoredConnector, run: ConnectorRun | None) -> bool | None:
        """Whether all tasks have answered a round of the present configuration, if they do."""
        config = self._configs.valid(state)
        if config is not None and config.aggregation is not None:
            return None
        return run is not None and run.reports.is_answered and run.config == state.config

    def _audit(self, state: StoredConnector) -> Mapping[str, Any]:
        """Compare rows in with rows out; reads the whole control topic and every manifest."""
        reserved = self._configs.reserved_topics()
        with reachable(), self._opened(state.config or {}, reserved) as direct:
            return audit(direct, self._clock).as_json()

    def _lag(self, state: StoredConnector) -> Mapping[str, Any]:
        """Return two lags: records not in files, by partition; records in files but no table."""
        partitions = sorted(state.layout.partitions) if state.layout else []
        with reachable():
            committed = self._admin.committed(self._configs.group_of(state), partitions)
            marks = self._admin.watermarks(partitions)
        lags = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed_offset": committed[tp],
                "end_offset": marks[tp][1],
                "lag": max(0, marks[tp][1] - max(committed[tp] or 0, marks[tp][0])),
            }
            for tp in partitions
        ]
        valid_through = self._exposition.total(
            "valid_through_timestamp_seconds", connector=state.name
        )
        return {
            "not_in_files": sum(p["lag"] for p in lags),
            "in_files_not_committed": int(
                self._exposition.total("records_uncommitted", connector=state.name) or 0
            ),
            "valid_through_ms": None if valid_through is None else int(valid_through * 1000),
            "partitions": lags,
        }

    def _orphan_age(self, state: StoredConnector) -> Mapping[str, Any]:
        """Return the age from which files that no table references may be deleted."""
        with reachable():
            return self.orphan_age(state).as_json()

    def orphan_age(self, state: StoredConnector) -> OrphanAgeReport:
        """Return the age from which files that no table references may be deleted.

        Announcements of every connector of the cluster count that may write to the same tables.

        Raises:
            ConfigError: the connector's configuration is not valid, or the broker refuses.
            RetriableError: the broker cannot be reached.
        """
        reader = LogReader({**self._reader_properties, "fetch.max.wait.ms": "50"})
        try:
            config = self._configs.parsed(state)
            reports = [
                orphan_age(self._admin, reader, each, self._clock)
                for each in (config, *self._configs.sharing_tables(config))
            ]
            return oldest_of(reports, now_ms=self._clock.now_ms())
        finally:
            reader.close()

    def _dead_letters(self, state: StoredConnector) -> Mapping[str, Any]:
        try:
            topic = self._configs.parsed(state).errors.dead_letter_topic
        except ConfigError as e:
            raise NotAllowedError(e.message) from e
        last = self._last_dead_letters(topic, state.name) if topic else []
        return {"topic": topic, "last": last}

    def _last_dead_letters(self, topic: str, connector: str) -> list[dict[str, Any]]:
        """Return the newest dead letters of the connector among the last ones of the topic."""
        with reachable():
            marks = self._admin.watermarks(self._admin.partitions(topic))
            starts = {
                tp: max(start, end - DEAD_LETTERS_SHOWN)
                for tp, (start, end) in marks.items()
                if end > start
            }
            if not starts:
                return []
            records = self._read(starts, {tp: marks[tp][1] for tp in starts})
        records.sort(key=lambda r: (r.timestamp_ms, r.partition, r.offset), reverse=True)
        displayed = (_dead_letter(record) for record in records)
        return [s for s in displayed if s["connector"] in {None, connector}][:DEAD_LETTERS_SHOWN]

    def _read(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> list[KafkaRecord]:
        reader = LogReader({**self._reader_properties, "fetch.max.wait.ms": "50"})
        deadline_ms = self._clock.monotonic_ms() + DEAD_LETTERS_TIMEOUT_MS
        records: list[KafkaRecord] = []
        try:
            reader.assign(starts)
            while any(reader.positions()[tp] < end for tp, end in ends.items()):
                records += reader.poll(100)
                if self._clock.monotonic_ms() >= deadline_ms:
                    break  # the records read so far are shown
        finally:
            reader.close()
        return records


def _dead_letter(record: KafkaRecord) -> dict[str, Any]:
    """Return source coordinates and reason of a dead letter, as far as its headers have them."""
    source = origin(record)
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "connector": source.connector,
        "source_topic": source.topic,
        "source_partition": source.partition,
        "source_offset": source.offset,
        "stage": source.stage,
        "reason": None if source.reason is None else source.reason[:REASON_CHARS],
        "table": source.table,
    }
