"""Operators' changes to the tables of a stopped connector: rebase, reset of the VTTS, rewind.

Rules of this file:
- Each request runs in its own thread: a catalog that hangs must not keep other commands waiting.
- Each request gets one answer: what was done, or an error with its code.
- Placeholders are resolved in this process, and are not passed on.
- A rebase reads only tables that the connector may write, and says nothing about others.
- It changes only tables whose floor is lost; the group's control offsets become their floor:
  everything announced below them was committed or given up.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from connect.config.connector import ConnectorConfig
from connect.config.node.node_config import NodeConfig
from connect.config.table_formats import FORMAT_NAMES, UNSUPPORTED
from connect.errors import CommitRefused, ConfigError, IcefloeError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import client_properties
from connect.processes.child_main import Child
from connect.protocol.control_offsets import offsets_text
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.iceberg.floor import floor_keys, table_state
from coordinator.commit.operator_changes.valid_through_reset import reset_claims
from coordinator.rewind.control_log import ControlLog
from coordinator.rewind.kept_history import cancel, keep_history, release_history
from coordinator.rewind.recorded_rewind import RecordedRewind
from coordinator.rewind.rewind_planner import RewindPlanner
from coordinator.rewind.rewind_request import RewindRequest
from coordinator.rewind.table_rollback import TableRollback

OPERATIONS: Final = frozenset({"rebase", "reset_valid_through", "rewind"})
"""Commands of the node that are such requests."""


class OperatorRequests:
    """The requests of one coordinator process.

    Args:
        child: the pipe to the node.
        node: the node's configuration.
        providers: resolves placeholders.
        clock: time and identities.
    """

    def __init__(
        self, child: Child, node: NodeConfig, providers: Providers, clock: WaitingClock
    ) -> None:
        self._child = child
        self._node = node
        self._providers = providers
        self._clock = clock

    def start(self, command: Mapping[str, Any]) -> None:
        """Begin one of ``OPERATIONS``; returns at once."""
        threading.Thread(target=self._run, args=(command,), daemon=True).start()

    def _run(self, command: Mapping[str, Any]) -> None:
        try:
            answer = self._answer(command)
        except IcefloeError as e:
            answer = {"tables": [], "error": str(e), "code": e.code}
        where = {"connector": command["connector"], "request": command["request"]}
        self._child.channel.send({"event": "answer", **where, **answer})

    def _answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        config = self._iceberg_connector(command["config"])
        match command["op"]:
            case "rebase":
                return {"tables": self._rebase(config, command)}
            case "reset_valid_through":
                return {"tables": self._reset(config, command)}
            case _:
                node = self._providers.resolve_all(self._node.properties)
                kafka = client_properties(node, config.kafka_overrides)
                return rewind_answer(config, kafka, self._clock, command)

    def _rebase(self, config: ConnectorConfig, command: Mapping[str, Any]) -> list[Any]:
        with _catalog(config) as catalog:
            return restore_floors(
                catalog,
                config,
                sorted({*config.tables, *command["tables"]}),
                {int(p): offset for p, offset in command["offsets"].items()},
                is_applied=command["apply"],
            )

    def _reset(self, config: ConnectorConfig, command: Mapping[str, Any]) -> list[Any]:
        with _catalog(config) as catalog:
            return reset_claims(
                catalog,
                config,
                command["tables"],
                command["reason"],
                self._clock,
                control_ends={int(p): end for p, end in command["control_ends"].items()},
                is_applied=command["apply"],
            )

    def _iceberg_connector(self, config: Mapping[str, str]) -> ConnectorConfig:
        connector = resolve(parse(config), self._providers, node=self._node.properties)
        if not connector.is_iceberg:
            raise ConfigError(
                "this operation needs Iceberg's snapshots; "
                f"{FORMAT_NAMES[connector.table_format]} have none",
                code=UNSUPPORTED[connector.table_format],
            )
        return connector


def _catalog(config: ConnectorConfig) -> closing[CatalogGateway]:
    """Open the catalog of a connector; the end of the context closes it."""
    return closing(open_catalog(config.catalog_name, config.catalog_properties, config.locations))


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
