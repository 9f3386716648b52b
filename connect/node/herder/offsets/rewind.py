"""The steps of ``icefloe rewind``: plan, record, tables, source offsets.

Rules of this file:
- A rewind is recorded in the config topic before anything is changed. While the record is there,
  the connector does not start. So a crash at any step leaves a connector that stands still, and the
  same command finishes.
- The history of each table is kept before anything is announced (``keep_history``), and until the
  rewind is done. Tables go back then, source offsets last. Each step may be repeated: a table that
  carries the identity of the rewind is done, and the same offsets are set again.
- Each step is written to the config topic before it is made, which refuses a former leader.
- A rewind that has taken no table back may be cancelled. An unfinished one may be replaced by one
  that is planned from the present state.
- A coordinator of the connector that is frozen is fenced first: it sends no event after the rewind.
- The change of offsets is announced before the tables store the end of the control topic. So an
  announcement from before the rewind is never taken for the position of a table after it.
- The coordinator process plans and changes tables: it has the catalog's clients and secrets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from connect import failpoints
from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.logs import logger
from connect.metrics.process_metrics import counter
from connect.model.layout import Layout
from connect.node.herder.child_requests import SLOW_ANSWER_TIMEOUT_S, ChildRequests
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.offsets.offset_changes import OffsetChanges
from connect.node.herder.offsets.offset_events import OffsetEvents
from connect.node.node_requests import ConflictError, NotAllowedError, UnavailableError
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.rewind_record import RewindChoice, RewindRecord
from connect.state.topic_records import TargetState

UNFINISHED: Final = (
    "connector {name} has a rewind that was begun and not finished; finish it with "
    "icefloe rewind {name} --yes, or see icefloe rewind --help"
)
_NOT_ALLOWED: Final = frozenset({"no_such_commit"})
_HISTORY_EXPIRED: Final = "history_expired"
_STEPS: Final = {
    "recorded": "nothing is changed yet",
    "tables": "its tables are being taken back",
    "offsets": "its tables are done, its source offsets are being set",
}

_log = logger("herder")


class RewindSteps:
    """The steps of rewinds of stopped connectors.

    Args:
        store: where a rewind is recorded.
        offsets: changes of source offsets.
        offset_events: announces and stores them.
        fence_coordinator: a coordinator of the connector that is frozen sends no event after it.
        requests: to the coordinator process.
        clock: identities of rewinds.
    """

    def __init__(
        self,
        store: ConfigStore,
        offsets: OffsetChanges,
        offset_events: OffsetEvents,
        configs: ConnectorConfigs,
        *,
        fence_coordinator: Callable[[ConnectorConfig], None],
        requests: ChildRequests,
        clock: Clock,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._offset_events = offset_events
        self._configs = configs
        self._fence_coordinator = fence_coordinator
        self._requests = requests
        self._clock = clock
        self._busy: set[str] = set()

    @contextlib.contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """Keep other requests from changing a connector's rewind meanwhile.

        Raises:
            ConflictError: another request is changing it.
        """
        if name in self._busy:
            raise ConflictError(
                f"another request is rewinding connector {name}; try again later", connector=name
            )
        self._busy.add(name)
        try:
            yield
        finally:
            self._busy.discard(name)

    def plan(self, state: StoredConnector, choice: RewindChoice) -> Mapping[str, Any]:
        """Return the plan; nothing is changed.

        Raises:
            NotAllowedError: there is no such commit.
            UnavailableError: broker or catalog did not answer.
        """
        layout = state.layout or Layout(state.name, 0, ())
        answer = self._answer(
            state,
            step="plan",
            asked=choice.to_json(),
            ranges_from=list(layout.ranges_from),
            unfinished=[] if state.rewind is None else state.rewind.ids,
        )
        plan: Mapping[str, Any] = answer["plan"]
        return plan

    def begin(
        self, state: StoredConnector, choice: RewindChoice, plan: Mapping[str, Any]
    ) -> RewindRecord:
        """Record a rewind without open problems; return the record.

        The caller has made sure that the connector is stopped, and keeps other changes out.
        """
        recorded = RewindRecord(
            str(self._clock.new_uuid()),
            self._configs.parsed(state).connect_group_id,
            choice.to_json(),
            plan["commit"],
            {t["table"]: t["target_snapshot_id"] for t in plan["tables"]},
            [(topic, partition, to) for topic, partition, _, to in plan["source_offsets"]],
            may_have_expired=_HISTORY_EXPIRED in choice.accepted,
            replaced=[] if state.rewind is None else state.rewind.ids,
        )
        self._store.put_rewind(state.name, recorded)
        _log.info("rewind recorded", connector=state.name, rewind=recorded.id)
        failpoints.hit("B1")
        return recorded

    def attempted(self, recorded: RewindRecord) -> RewindRecord:
        """Return the record with the identity of a new attempt to finish the rewind."""
        return replace(recorded, attempt=str(self._clock.new_uuid()))

    def keep_history(
        self, state: StoredConnector, recorded: RewindRecord
    ) -> list[Mapping[str, Any]]:
        """Keep the snapshots that the rewind needs; return the result of each table.

        Raises:
            UnavailableError: broker, catalog or coordinator process did not answer.
        """
        return self._tables(state, recorded, "keep")

    def announce(self, name: str, recorded: RewindRecord) -> None:
        """Fence the coordinator, then announce that the source offsets will move back.

        Raises:
            ConflictError: the configuration names another group now, or the rewind has ended.
        """
        self._enter(name, recorded, "tables")
        failpoints.hit("B6")
        state = self._store.get(name)
        config = self._configs.parsed(state)
        if config.connect_group_id != recorded.group:
            raise ConflictError(
                f"the rewind was begun for group {recorded.group}; restore that configuration "
                "first",
                connector=state.name,
            )
        self._fence_coordinator(config)
        self._offset_events.announce_rewind(state, recorded.positions)
        failpoints.hit("B2")

    def take_tables_back(
        self, state: StoredConnector, recorded: RewindRecord
    ) -> list[Mapping[str, Any]]:
        """Commit the rewind to the tables; return the result of each.

        Raises:
            UnavailableError: broker, catalog or coordinator process did not answer.
        """
        tables = self._tables(state, recorded, "apply")
        failpoints.hit("B4")
        return tables

    def finish(self, name: str, recorded: RewindRecord) -> None:
        """Set the source offsets; the tables are done.

        Raises:
            ConflictError: the rewind has ended.
        """
        self._enter(name, recorded, "offsets")
        positions = recorded.positions
        with self._offset_events.changing:
            group = self._offsets.settle(name)
            state = self._store.get(name)
            self._offset_events.set(state, group, positions, is_announced=True)
            self._offsets.run_again(name)
        failpoints.hit("B5")

    def release_history(
        self, state: StoredConnector, recorded: RewindRecord
    ) -> list[Mapping[str, Any]]:
        """Let the snapshots expire again; return the result of each table.

        Raises:
            UnavailableError: broker, catalog or coordinator process did not answer.
        """
        return self._tables(state, recorded, "release")

    def cancel(self, state: StoredConnector, recorded: RewindRecord) -> list[Mapping[str, Any]]:
        """Make sure that the rewind changes no table any more; return the result of each.

        With any ``code`` it is not cancelled: a table was taken back, or cannot be read.

        Raises:
            UnavailableError: broker, catalog or coordinator process did not answer.
        """
        return self._tables(state, recorded, "cancel")

    def end(self, name: str, recorded: RewindRecord, outcome: str) -> None:
        """Remove the record of a rewind that is ``done`` or ``cancelled``."""
        state = self._store.get(name)
        if state.rewind is None or state.rewind.id != recorded.id:
            return  # another node ended it
        self._store.put_rewind(name, None)
        counter("rewinds", connector=name, outcome=outcome).inc()
        _log.info("rewind ended", connector=name, rewind=recorded.id, outcome=outcome)

    def _enter(self, name: str, recorded: RewindRecord, step: str) -> None:
        state = self._store.get(name)
        if state.rewind is None or state.rewind.id != recorded.id:
            raise ConflictError(f"the rewind of connector {name} has ended", connector=name)
        self._store.put_rewind(name, replace(recorded, step=step))
        _log.info("rewind step begins", connector=name, rewind=recorded.id, step=step)

    def _tables(
        self, state: StoredConnector, recorded: RewindRecord, step: str
    ) -> list[Mapping[str, Any]]:
        tables: list[Mapping[str, Any]] = self._answer(state, step=step, rewind=recorded.to_json())[
            "tables"
        ]
        return tables

    def _answer(self, state: StoredConnector, **more: Any) -> Mapping[str, Any]:
        command = {
            "op": "rewind",
            "connector": state.name,
            "config": dict(state.config or {}),
            **more,
        }
        answer = self._requests.ask("coordinator", command, timeout_s=SLOW_ANSWER_TIMEOUT_S)
        error = answer.get("error")
        if error is None:
            return answer
        if answer["code"] in _NOT_ALLOWED:
            raise NotAllowedError(str(error))
        raise UnavailableError(str(error), code=str(answer["code"]))


def rewind_text(state: StoredConnector) -> str | None:
    """Return what an unfinished rewind is doing, for the status; None without one."""
    recorded = state.rewind
    if recorded is None:
        return None
    commit = recorded.commit
    where = "the beginning" if commit is None else f"the commit of {commit['committed_at']}"
    step = _STEPS.get(recorded.step, _STEPS["recorded"])
    return (
        f"a rewind to {where} is not finished: {step} ({len(recorded.tables)} tables, "
        f"{len(recorded.offsets)} source offsets); if no command runs, finish it with: "
        f"icefloe rewind {state.name} --yes"
    )


def may_become(state: StoredConnector, target: TargetState) -> StoredConnector:
    """Return the connector if it may get this target state.

    Raises:
        ConflictError: a rewind was begun and is not finished.
    """
    if state.rewind is not None and target != "STOPPED":
        raise ConflictError(UNFINISHED.format(name=state.name), connector=state.name)
    return state
