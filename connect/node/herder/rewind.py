"""The steps of ``icefloe rewind``: plan, record, tables, source offsets.

Rules of this file:
- A rewind is recorded in the config topic before anything is changed. While the record is there,
  the connector does not start. So a crash at any step leaves a connector that stands still, and the
  same command finishes.
- Tables go back first, source offsets last. Each step may be repeated: a table that carries the
  identity of the rewind is done, and the same offsets are set again.
- A coordinator of the connector that is frozen is fenced first: it sends no event after the rewind.
- The change of offsets is announced before the tables store the end of the control topic. So an
  announcement from before the rewind is never taken for the position of a table after it.
- The coordinator process plans and changes tables: it has the catalog's clients and secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from connect import failpoints
from connect.config.connector import ConnectorConfig
from connect.logs import logger
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.offset_changes import OffsetChanges
from connect.node.herder.offset_events import OffsetEvents
from connect.node.herder_api import ConflictError, NotAllowedError, TargetState, UnavailableError
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector

UNFINISHED: Final = (
    "connector {name} has a rewind that was begun and not finished; finish it with "
    "icefloe rewind {name} --yes"
)
_NOT_ALLOWED: Final = frozenset({"no_such_commit"})
_HISTORY_EXPIRED: Final = "history_expired"

Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]

_log = logger("herder")


class RewindSteps:
    """The steps of rewinds of stopped connectors.

    Args:
        store: where a rewind is recorded.
        offsets: changes of source offsets.
        offset_events: announces and stores them.
        configs: stored configurations, typed.
        fence_coordinator: a coordinator of the connector that is frozen sends no event after it.
        ask: sends a command to a child and returns its answer, with a long time limit.
        new_id: returns the identity of a rewind.
    """

    def __init__(
        self,
        store: ConfigStore,
        offsets: OffsetChanges,
        offset_events: OffsetEvents,
        configs: ConnectorConfigs,
        *,
        fence_coordinator: Callable[[ConnectorConfig], None],
        ask: Ask,
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._offset_events = offset_events
        self._configs = configs
        self._fence_coordinator = fence_coordinator
        self._ask = ask
        self._new_id = new_id

    def plan(self, state: StoredConnector, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the plan; nothing is changed.

        Raises:
            NotAllowedError: there is no such commit.
            UnavailableError: broker or catalog did not answer.
        """
        layout = state.layout or Layout(state.name, 0, ())
        answer = self._answer(
            state, step="plan", asked=dict(asked), ranges_from=list(layout.ranges_from)
        )
        plan: Mapping[str, Any] = answer["plan"]
        return plan

    def begin(
        self, state: StoredConnector, asked: Mapping[str, Any], plan: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Record a rewind without open problems; return the record.

        The caller has made sure that the connector is stopped, and keeps other changes out.
        """
        commit = plan["commit"]
        recorded = {
            "id": self._new_id(),
            "group": self._configs.parsed(state).connect_group_id,
            "asked": dict(asked),
            "commit": commit,
            "cut": None if commit is None else commit["control_offsets"],
            "tables": {t["table"]: t["target_snapshot_id"] for t in plan["tables"]},
            "offsets": [
                [topic, partition, to] for topic, partition, _, to in plan["source_offsets"]
            ],
            "may_have_expired": _HISTORY_EXPIRED in asked["accept"],
        }
        self._store.put_rewind(state.name, recorded)
        _log.info("rewind recorded", connector=state.name, rewind=recorded["id"])
        failpoints.hit("B1")
        return recorded

    def announce(self, state: StoredConnector, recorded: Mapping[str, Any]) -> None:
        """Fence the coordinator, then announce that the source offsets will move back.

        Raises:
            ConflictError: the configuration names another group now.
        """
        config = self._configs.parsed(state)
        if config.connect_group_id != recorded["group"]:
            raise ConflictError(
                f"the rewind was begun for group {recorded['group']}; restore that configuration "
                "first",
                connector=state.name,
            )
        self._fence_coordinator(config)
        self._offset_events.announce_rewind(state, _positions(recorded))
        failpoints.hit("B2")

    def take_tables_back(
        self, state: StoredConnector, recorded: Mapping[str, Any]
    ) -> list[Mapping[str, Any]]:
        """Commit the rewind to the tables; return the result of each.

        Raises:
            UnavailableError: broker, catalog or coordinator process did not answer.
        """
        tables: list[Mapping[str, Any]] = self._answer(state, step="apply", rewind=recorded)[
            "tables"
        ]
        failpoints.hit("B4")
        return tables

    def finish(self, name: str, recorded: Mapping[str, Any]) -> None:
        """Set the source offsets and remove the record; the tables are done."""
        state = self._store.get(name)
        if state.rewind is None or state.rewind["id"] != recorded["id"]:
            return  # another request finished it
        positions = _positions(recorded)
        with self._offset_events.changing:
            group = self._offsets.settle(name)
            state = self._store.get(name)
            self._offset_events.set(state, group, positions, is_announced=True)
            self._offsets.run_again(name)
        failpoints.hit("B5")
        self._store.put_rewind(name, None)
        _log.info("rewind done", connector=name, rewind=recorded["id"], partitions=len(positions))

    def _answer(self, state: StoredConnector, **more: Any) -> Mapping[str, Any]:
        command = {
            "op": "rewind",
            "connector": state.name,
            "config": dict(state.config or {}),
            **more,
        }
        answer = self._ask("coordinator", command)
        error = answer.get("error")
        if error is None:
            return answer
        if answer["code"] in _NOT_ALLOWED:
            raise NotAllowedError(str(error))
        raise UnavailableError(str(error), code=str(answer["code"]))


def may_become(state: StoredConnector, target: TargetState) -> StoredConnector:
    """Return the connector if it may get this target state.

    Raises:
        ConflictError: a rewind was begun and is not finished.
    """
    if state.rewind is not None and target != "STOPPED":
        raise ConflictError(UNFINISHED.format(name=state.name), connector=state.name)
    return state


def _positions(recorded: Mapping[str, Any]) -> dict[TopicPartition, int]:
    return {TopicPartition(t, p): at for t, p, at in recorded["offsets"]}
