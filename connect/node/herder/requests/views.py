"""Views of a connector below ``/icefloe/v1``, and decisions about its tables.

Rules of this file:
- Numbers come from the metrics and rounds that this node last received. After a restart of the
  node they begin again. Offsets come from the broker, in bounded time.
- No content of a record is shown: of a dead letter, its coordinates and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, Literal

from connect.clock import Clock
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.metrics.process_metrics import Exposition
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.node.herder.child_requests import ChildRequests
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.herder import Herder
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.herder.units.units import ConnectorRun
from connect.node.node_requests import ConflictError, NotAllowedError, View, reachable
from connect.operations.audit.auditor import audit
from connect.operations.connector_clients import ConnectorClients
from connect.operations.orphan_age import OrphanAgeReport, oldest_of, orphan_age
from connect.records.dead_letter import origin
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector

DEAD_LETTERS_SHOWN = 20
DEAD_LETTERS_TIMEOUT_MS = 5_000
REASON_CHARS = 500


_UNDECIDED: Final = {
    "not_running": "Connector {name} does not run",
    "not_failed": "Table {table} has no failed commit",
    "busy": "Table {table} is being committed now; try again in a moment",
}
_UNMAINTAINED: Final = {
    "DISABLED": "Connector {name} does not run, or no iceberg.maintenance key enables the "
    "maintenance process for it",
    "NOT_ALLOWED": "The node's property icefloe.maintenance.enabled does not allow maintenance",
}


class OrphanAges:
    """The ages from which files that no table references may be deleted.

    Args:
        configs: the same, typed.
        reader_properties: Java-named consumer properties, for control topics.
    """

    def __init__(
        self,
        store: ConfigStore,
        configs: ConnectorConfigs,
        admin: KafkaAdmin,
        reader_properties: Mapping[str, str],
        clock: Clock,
    ) -> None:
        self._store = store
        self._configs = configs
        self._admin = admin
        self._reader_properties = reader_properties
        self._clock = clock

    def report(self, name: str) -> OrphanAgeReport:
        """Return the age for a connector's tables.

        Announcements of every connector of the cluster count that may write to the same tables.

        Raises:
            ConfigError: the connector's configuration is not valid, or the broker refuses.
            RetriableError: the broker cannot be reached.
        """
        reader = LogReader({**self._reader_properties, "fetch.max.wait.ms": "50"})
        try:
            config = self._configs.parsed(self._store.get(name))
            reports = [
                orphan_age(self._admin, reader, each, self._clock)
                for each in (config, *self._configs.sharing_tables(config))
            ]
            return oldest_of(reports, now_ms=self._clock.now_ms())
        finally:
            reader.close()

    def safe_age_ms(self, name: str) -> int | None:
        """Return the age in milliseconds; None when it is not known. Raises as ``report``."""
        return self.report(name).safe_age_ms


class Views:
    """Views of connectors.

    Args:
        connectors: access to the stored connectors.
        herder: the observed state of connectors on this node, and their maintenance.
        admin: offsets.
        reader_properties: Java-named consumer properties, for the dead letter topic.
        opened: clients for a connector's configuration and the topics ``reserved``, its catalog
            among them.
        ages: of orphan files.
    """

    def __init__(
        self,
        connectors: StoredConnectors,
        herder: Herder,
        configs: ConnectorConfigs,
        admin: KafkaAdmin,
        *,
        reader_properties: Mapping[str, str],
        opened: Callable[..., AbstractContextManager[ConnectorClients]],
        ages: OrphanAges,
        exposition: Exposition,
        clock: Clock,
    ) -> None:
        self._connectors = connectors
        self._herder = herder
        self._configs = configs
        self._admin = admin
        self._reader_properties = reader_properties
        self._opened = opened
        self._ages = ages
        self._exposition = exposition
        self._clock = clock

    def show(self, name: str, kind: View) -> Mapping[str, Any]:
        """Return one view as a JSON object.

        Raises:
            UnknownConnectorError: no such connector.
            NotAllowedError: the connector's configuration is not valid, or the broker refuses.
            UnavailableError: the broker cannot be reached.
        """
        state = self._connectors.get(name)
        run = self._herder.run_of(name)
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
                view = self._herder.maintenance.view(name)
            case "orphan-age":
                with reachable():
                    view = self._ages.report(name).as_json()
            case "audit":
                view = self._audit(state)
        return {"connector": name, **view}

    def _is_answered(self, state: StoredConnector, run: ConnectorRun | None) -> bool | None:
        """Whether all tasks have answered a round of the present configuration, if they do."""
        config = self._configs.valid(state)
        if config is not None and config.aggregation is not None:
            return None
        return run is not None and run.reports.is_answered and run.config == state.config

    def _audit(self, state: StoredConnector) -> Mapping[str, Any]:
        """Compare rows in with rows out; reads the whole control topic and every manifest."""
        reserved = self._configs.reserved_topics()
        with reachable(), self._opened(state.config or {}, reserved=reserved) as direct:
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


class TableDecisions:
    """Decisions of an operator about the tables of a running connector.

    Args:
        connectors: access to the stored connectors.
        views: the state of maintenance.
        herder: begins and stops maintenance.
        requests: to the coordinator process.
    """

    def __init__(
        self, connectors: StoredConnectors, views: Views, herder: Herder, requests: ChildRequests
    ) -> None:
        self._connectors = connectors
        self._views = views
        self._herder = herder
        self._requests = requests

    def decide(self, name: str, table: str, action: Literal["retry", "skip"]) -> Mapping[str, Any]:
        """Retry or skip the failed commits of a table.

        Args:
            name: connector.
            table: as the view ``tables`` names it.
            action: ``retry`` commits again now; ``skip`` gives up the waiting announcements.

        Returns:
            A JSON object: the files that were given up, and those that still wait.

        Raises:
            UnknownConnectorError: no such connector.
            ConflictError: the table has no failed commit, or is being committed now.
            UnavailableError: the coordinator did not answer.
        """
        self._connectors.get(name)
        command = {"op": "decide", "connector": name, "table": table, "action": action}
        answer = self._requests.ask("coordinator", command)
        _refuse(_UNDECIDED.get(answer["state"]), name=name, table=table)
        return {k: v for k, v in answer.items() if k not in {"event", "request", "state"}}

    def request_maintenance(self, name: str, *, is_run: bool) -> Mapping[str, Any]:
        """Run the maintenance of a connector's tables now, or stop it until the next request.

        Args:
            name: connector.
            is_run: False stops it, on this node until its next start.

        Returns:
            The view ``maintenance`` as it was at the request.

        Raises:
            UnknownConnectorError: no such connector.
            ConflictError: the connector does not run, enables no maintenance, or the node's
                properties do not allow it.
        """
        view = self._views.show(name, "maintenance")
        _refuse(_UNMAINTAINED.get(view["state"]), name=name)
        self._herder.request_maintenance(name, is_run=is_run)
        return view


def _refuse(why: str | None, **names: str) -> None:
    if why is not None:
        raise ConflictError(why.format(**names))


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
