"""The coordinator process's answers to a node that rewinds a connector."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from coordinator.commit.commit_retries import WaitingClock
from coordinator.rewind.control_log import ControlLog
from coordinator.rewind.kept_history import cancel, keep_history, release_history
from coordinator.rewind.recorded_rewind import RecordedRewind
from coordinator.rewind.rewind_planner import RewindPlanner
from coordinator.rewind.rewind_request import RewindRequest
from coordinator.rewind.table_rollback import TableRollback


def rewind_answer(
    config: ConnectorConfig,
    kafka: Mapping[str, str],
    clock: WaitingClock,
    command: Mapping[str, Any],
) -> dict[str, Any]:
    """Plan a rewind, or make one step of a recorded one.

    Args:
        config: the connector, placeholders resolved.
        kafka: properties of Kafka clients.
        clock: time, identities, waiting.
        command: with ``step``: ``plan``, ``keep``, ``release``, ``cancel``, or any other for the
            commits to the tables.

    Returns:
        ``plan``; of a step ``tables``, a JSON object for each.

    Raises:
        IcefloeError: the request cannot be planned, or a client does not answer.
    """
    with _clients(config, kafka) as (catalog, admin):
        if command["step"] == "plan":
            ranges_from = {int(p): at for p, at in command["ranges_from"]}
            log = ControlLog(config, kafka, admin, clock)
            planner = RewindPlanner(
                config, log, admin, catalog, ranges_from, command.get("unfinished", ())
            )
            request = RewindRequest.from_json(command["asked"])
            return {"plan": planner.plan(request).to_json(request.accepted)}
        rewind, targets = _recorded(config, command), command["rewind"]["tables"]
        match command["step"]:
            case "keep":
                tables = keep_history(catalog, rewind, targets)
            case "release":
                tables = release_history(catalog, rewind, targets)
            case "cancel":
                tables = cancel(catalog, rewind, targets)
            case _:
                control = admin.partitions(config.control_topic)
                ends = admin.high_watermarks(control)
                tables = TableRollback(
                    catalog,
                    rewind,
                    clock,
                    {tp.partition: end for tp, end in ends.items()},
                    admin.topic_id(config.control_topic),
                ).apply(targets)
        return {"tables": tables}


def _recorded(config: ConnectorConfig, command: Mapping[str, Any]) -> RecordedRewind:
    recorded = command["rewind"]
    cut = recorded["cut"]
    return RecordedRewind(
        config,
        recorded["id"],
        None if cut is None else {int(p): at for p, at in cut.items()},
        recorded["may_have_expired"],
        recorded.get("attempt", ""),
    )


@contextlib.contextmanager
def _clients(
    config: ConnectorConfig, kafka: Mapping[str, str]
) -> Iterator[tuple[CatalogGateway, KafkaAdmin]]:
    with contextlib.ExitStack() as closing:
        catalog = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
        closing.callback(catalog.close)
        admin = KafkaAdmin(kafka)
        closing.callback(admin.close)
        yield catalog, admin
