"""Operators' changes to the tables of a stopped connector: rebase, reset of the VTTS, rewind.

Rules of this file:
- Each request runs in its own thread: a catalog that hangs must not keep other commands waiting.
- Each request gets one answer: what was done, or an error with its code.
- Placeholders are resolved in this process, and are not passed on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from connect.config.connector import ConnectorConfig
from connect.config.node.node_config import NodeConfig
from connect.config.table_formats import FORMAT_NAMES, UNSUPPORTED
from connect.errors import ConfigError, IcefloeError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.kafka.kafka_clients import client_properties
from connect.processes.child_main import Child
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve
from coordinator.commit.commit_retries import WaitingClock
from coordinator.commit.operator_changes.floor_rebase import restore_floors
from coordinator.commit.operator_changes.valid_through_reset import reset_claims
from coordinator.rewind.rewind_answers import rewind_answer

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
