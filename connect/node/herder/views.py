"""What ``/icefloe/v1`` shows of a connector, where Kafka Connect has no place for it.

Rules of this file:
- Numbers are those of the metrics and of the coordinator's rounds as this node last heard them;
  after a restart of the node they begin again. Offsets come from the broker, in bounded time.
- Nothing that is in a record is shown: of a dead letter its coordinates and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import LogReader
from connect.metrics.process_metrics import Exposition
from connect.model.layout import TopicPartition
from connect.model.records import KafkaRecord
from connect.node.herder.units import Run
from connect.node.herder_api import NotAllowedError, UnavailableError, View
from connect.operations.audit.auditor import audit
from connect.operations.connector_clients import ConnectorClients
from connect.operations.orphan_age import orphan_age
from connect.records.dead_letter import PREFIX, TABLE_HEADER
from connect.state.connector_state import StoredConnector

DEAD_LETTERS_SHOWN = 20
DEAD_LETTERS_TIMEOUT_MS = 5_000
REASON_CHARS = 500


class Views:
    """Views of connectors.

    Args:
        run_of: what runs of a connector on this node.
        config_of: a connector's configuration, typed.
        group_of: consumer group of a connector's source offsets.
        admin: offsets.
        reader_properties: Java-named consumer properties, for the dead letter topic.
        opened: clients for a connector's configuration, its catalog among them.
        exposition: metrics.
        clock: for time limits.
    """

    def __init__(
        self,
        *,
        run_of: Callable[[str], Run | None],
        config_of: Callable[[StoredConnector], ConnectorConfig],
        group_of: Callable[[StoredConnector], str],
        admin: KafkaAdmin,
        reader_properties: Mapping[str, str],
        opened: Callable[[Mapping[str, str]], AbstractContextManager[ConnectorClients]],
        exposition: Exposition,
        clock: Clock,
    ) -> None:
        self._run_of = run_of
        self._config_of = config_of
        self._group_of = group_of
        self._admin = admin
        self._reader_properties = reader_properties
        self._opened = opened
        self._exposition = exposition
        self._clock = clock

    def show(self, state: StoredConnector, what: View) -> Mapping[str, Any]:
        """One view, as a JSON object.

        Raises:
            NotAllowedError: the connector's configuration cannot be read, or the broker refuses.
            UnavailableError: the broker is away.
        """
        run = self._run_of(state.name)
        found: Mapping[str, Any]
        match what:
            case "rounds":
                found = {"rounds": list(run.rounds) if run is not None else []}
            case "tables":
                found = {"tables": run.tables() if run is not None else []}
            case "lag":
                found = self._lag(state)
            case "dead-letters":
                found = self._dead_letters(state)
            case "orphan-age":
                found = self._orphan_age(state)
            case "audit":
                found = self._audit(state)
        return {"connector": state.name, **found}

    def _audit(self, state: StoredConnector) -> Mapping[str, Any]:
        """Rows in against rows out; reads the whole control topic and every manifest."""
        with reachable(), self._opened(state.config or {}) as direct:
            return audit(direct, self._clock).as_json()

    def _lag(self, state: StoredConnector) -> Mapping[str, Any]:
        """The two lags: not yet in files, per partition; in files and not yet in a table."""
        partitions = sorted(state.layout.partitions) if state.layout else []
        with reachable():
            committed = self._admin.committed(self._group_of(state), partitions)
            marks = self._admin.watermarks(partitions)
        displayed = [
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
            "not_in_files": sum(p["lag"] for p in displayed),
            "in_files_not_committed": int(
                self._exposition.total("records_uncommitted", connector=state.name) or 0
            ),
            "valid_through_ms": None if valid_through is None else int(valid_through * 1000),
            "partitions": displayed,
        }

    def _orphan_age(self, state: StoredConnector) -> Mapping[str, Any]:
        """From which age on files that no table knows may be removed."""
        reader = LogReader({**self._reader_properties, "fetch.max.wait.ms": "50"})
        try:
            with reachable():
                config = self._config_of(state)
                return orphan_age(self._admin, reader, config, self._clock).as_json()
        finally:
            reader.close()

    def _dead_letters(self, state: StoredConnector) -> Mapping[str, Any]:
        try:
            topic = self._config_of(state).errors.dead_letter_topic
        except ConfigError as e:
            raise NotAllowedError(e.message) from e
        last = self._last_dead_letters(topic, state.name) if topic else []
        return {"topic": topic, "last": last}

    def _last_dead_letters(self, topic: str, connector: str) -> list[dict[str, Any]]:
        """The newest dead letters of the connector among the last ones of the topic."""
        with reachable():
            count = self._admin.topics().get(topic, 0)
            marks = self._admin.watermarks([TopicPartition(topic, p) for p in range(count)])
            starts = {
                tp: max(start, end - DEAD_LETTERS_SHOWN)
                for tp, (start, end) in marks.items()
                if end > start
            }
            if not starts:
                return []
            records = self._read(starts, {tp: marks[tp][1] for tp in starts})
        records.sort(key=lambda r: (r.timestamp_ms, r.partition, r.offset), reverse=True)
        displayed = (_displayed(record) for record in records)
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
                    break  # what was read by now is shown
        finally:
            reader.close()
        return records


@contextmanager
def reachable() -> Iterator[None]:
    """Map what the broker refuses, and its absence, to what the API can say."""
    try:
        yield
    except ConfigError as e:
        raise NotAllowedError(e.message) from e
    except RetriableError as e:
        if e.code == "group_in_use":  # for the caller to put right
            raise NotAllowedError(e.message, code=e.code) from e
        raise UnavailableError(e.message, code=e.code) from e


def _displayed(record: KafkaRecord) -> dict[str, Any]:
    """Where the record came from and why it is here, when its headers say so."""
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}

    def reported(name: str) -> str | None:
        return headers.get(PREFIX + name)

    reason = reported("exception.message")
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "connector": reported("connector.name"),
        "source_topic": reported("topic"),
        "source_partition": _number(reported("partition")),
        "source_offset": _number(reported("offset")),
        "stage": reported("stage"),
        "reason": None if reason is None else reason[:REASON_CHARS],
        "table": headers.get(TABLE_HEADER),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
