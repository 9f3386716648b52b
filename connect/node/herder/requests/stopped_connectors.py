"""Requests that need a stopped connector: offsets, rebase, rewind, reset of the valid-through time.

Rules of this file:
- No task of the connector can write: it is STOPPED, and its empty layout is ready.
- A reset of the valid-through time changes tables first. The coordinator process does it, because
  it has the catalog's clients and secrets. Then an event reports it to the next coordinator, which
  reads earlier claims in the control topic. A repeated reset does no harm: a client without an
  answer repeats it.
- While a rewind is recorded, nothing else is changed. Its tables are changed without the lock of
  the other changes, because many tables take long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.model.layout import TopicPartition
from connect.node.herder.child_requests import ChildRequests
from connect.node.herder.connector_configs import ConnectorConfigs
from connect.node.herder.offsets.offset_changes import OffsetChanges
from connect.node.herder.offsets.offset_events import OffsetEvents
from connect.node.herder.offsets.rebase import Rebase
from connect.node.herder.offsets.rewind import UNFINISHED, RewindSteps
from connect.node.herder.requests.stored_connectors import StoredConnectors
from connect.node.node_requests import (
    ConflictError,
    NotAllowedError,
    OffsetPlan,
    Offsets,
    reachable,
)
from connect.operations.connector_clients import refuse_without_snapshots
from connect.protocol.fencing import coordinator_transactional_id, take_over
from connect.protocol.offset_plan import OffsetTarget, plan_moves
from connect.protocol.source_partitions import source_partitions
from connect.state.config_store import ConfigStore
from connect.state.connector_state import StoredConnector
from connect.state.rewind_record import RewindChoice, RewindRecord

STOP_FIRST = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be "
    "done for the specified connector by issuing a 'PUT' request to the '/connectors/{name}/stop' "
    "endpoint"
)
STOP_POLL_S = 0.05
STOP_POLLS_MAX = 600  # half a minute: the default grace of tasks


class StoppedConnectors:
    """Changes of stopped connectors.

    Args:
        connectors: access to the stored connectors.
        offset_events: announces changes.
        requests: to the coordinator process.
        clock: time, and identities of rewinds.
    """

    def __init__(
        self,
        connectors: StoredConnectors,
        store: ConfigStore,
        admin: KafkaAdmin,
        offset_events: OffsetEvents,
        configs: ConnectorConfigs,
        *,
        requests: ChildRequests,
        clock: Clock,
    ) -> None:
        self._connectors = connectors
        self._configs = configs
        self._admin = admin
        self._clock = clock
        self._offsets = OffsetChanges(store, admin, offset_events, configs)
        self._rebase = Rebase(store, admin, offset_events, requests)
        self._reset = ValidThroughReset(offset_events, admin, self._fence_coordinator, requests)
        self._rewind = RewindSteps(
            store,
            self._offsets,
            offset_events,
            configs,
            fence_coordinator=self._fence_coordinator,
            requests=requests,
            clock=clock,
        )

    def offsets(self, name: str) -> Offsets:
        """Return the committed source offsets of any connector, stopped or not."""
        committed = self._offsets.committed(self._connectors.get(name))
        return {(tp.topic, tp.partition): offset for tp, offset in committed.items()}

    def plan_offsets(self, name: str, target: OffsetTarget) -> OffsetPlan:
        """Return where the source offsets of any connector would be moved; changes nothing."""
        state = self._connectors.get(name)
        if state.rewind is not None:  # it sets the offsets itself
            raise ConflictError(UNFINISHED.format(name=name), connector=name)
        committed = self._offsets.committed(state)
        try:
            config = self._configs.parsed(state)
            with reachable():
                reserved = self._configs.reserved_topics()
                partitions = source_partitions(config, self._admin.topics(), excluded=reserved)
                now_ms = self._clock.now_ms()
                moves = plan_moves(target, partitions, committed, self._admin, now_ms=now_ms)
        except ConfigError as error:
            raise NotAllowedError(error.message, connector=name) from error
        return OffsetPlan(
            moves,
            is_stopped=state.target == "STOPPED",
            is_row_level=config.is_row_level,
            is_rewindable=config.is_iceberg,
        )

    def alter_offsets(self, name: str, offsets: Offsets) -> None:
        """Change committed source offsets."""
        self._await_stopped(name)
        with self._connectors.change():
            self._must_be_stopped(name)
            self._offsets.alter(name, {TopicPartition(*at): to for at, to in offsets.items()})

    def reset_offsets(self, name: str) -> None:
        """Reset all committed source offsets."""
        self._await_stopped(name)
        with self._connectors.change():
            self._must_be_stopped(name)
            self._offsets.reset(name)

    def rebase(self, name: str, tables: Sequence[str], *, is_applied: bool) -> Mapping[str, Any]:
        """Let the connector continue without what its control topic lost."""
        with self._connectors.change():
            self._must_be_stopped(name)
            with reachable():
                self._iceberg(self._connectors.get(name))  # before anything is changed
                self._offsets.settle(name)
                state = self._connectors.get(name)
                return self._rebase.run(state, self._iceberg(state), tables, is_applied)

    def reset_valid_through(
        self, name: str, tables: Sequence[str], reason: str, *, is_applied: bool
    ) -> Mapping[str, Any]:
        """Withdraw the valid-through time that the connector claimed."""
        with self._connectors.change():
            self._must_be_stopped(name)
            with reachable():
                state = self._connectors.get(name)
                return self._reset.run(state, self._iceberg(state), tables, reason, is_applied)

    def _iceberg(self, state: StoredConnector) -> ConnectorConfig:
        """Return the configuration of a connector whose tables have snapshots.

        Raises:
            ConfigError: as ``refuse_without_snapshots``.
        """
        config = self._configs.parsed(state)
        refuse_without_snapshots(config)
        return config

    def _fence_coordinator(self, config: ConnectorConfig) -> None:
        transactional_id = coordinator_transactional_id(
            self._configs.group_id, config.name, config.coordinator_transactional_prefix
        )
        take_over(
            self._configs.producer_properties(config),
            [transactional_id],
            topic=config.control_topic,
        )

    def rewind(self, name: str, choice: RewindChoice, *, is_applied: bool) -> Mapping[str, Any]:
        """Show or apply the way back to an earlier commit; finish or cancel one that was begun."""
        with reachable():
            state = self._connectors.get(name)
            if state.rewind is None and (choice.is_cancelled or choice.is_replacing):
                raise NotAllowedError(f"connector {name} has no rewind that was begun")
            if state.rewind is not None and not choice.is_replacing:
                return self._unfinished(name, state.rewind, choice, is_applied=is_applied)
            if not choice.has_place:
                raise NotAllowedError(
                    f"connector {name} has no rewind that was begun; name a commit to go back to"
                )
            self._iceberg(state)
            plan = self._rewind.plan(state, choice)
            if not is_applied or _is_open(plan):
                return _rewound(name, choice.to_json(), plan, is_begun=state.rewind is not None)
            self._await_stopped(name)
            with self._rewind.alone(name):
                return self._begin(name, choice)

    def _begin(self, name: str, choice: RewindChoice) -> Mapping[str, Any]:
        """Plan again, now that the connector is stopped; record the rewind and make its steps."""
        with self._connectors.change():
            self._must_be_stopped(name, is_rewinding=choice.is_replacing)
        state = self._connectors.get(name)
        if state.rewind is not None:  # from now on it can change no table
            released = self._rewind.release_history(state, state.rewind)
            if any(table["code"] for table in released):
                displayed = _shown(state.rewind)
                return {
                    **_rewound(name, choice.to_json(), displayed, is_begun=True),
                    "results": released,
                }
        plan = self._rewind.plan(state, choice)
        if _is_open(plan):
            return _rewound(name, choice.to_json(), plan, is_begun=state.rewind is not None)
        with self._connectors.change():
            self._must_be_stopped(name, is_rewinding=state.rewind is not None)
            now = self._connectors.get(name)
            if (now.revision, now.rewind) != (state.revision, state.rewind):
                raise ConflictError(
                    f"Connector {name} was changed meanwhile; try again", connector=name
                )
            recorded = self._rewind.begin(state, choice, plan)
        return {**self._finish_rewind(name, recorded), **plan}

    def _unfinished(
        self,
        name: str,
        recorded: RewindRecord,
        choice: RewindChoice,
        *,
        is_applied: bool,
    ) -> Mapping[str, Any]:
        """Show, finish or cancel a rewind that was begun."""
        if choice.has_place:
            raise ConflictError(UNFINISHED.format(name=name), connector=name)
        if not is_applied:
            return _rewound(name, recorded.asked, _shown(recorded), is_begun=True)
        self._await_stopped(name)
        with self._rewind.alone(name):
            if choice.is_cancelled:
                return self._cancel_rewind(name, recorded)
            return self._finish_rewind(name, recorded)

    def _finish_rewind(self, name: str, recorded: RewindRecord) -> Mapping[str, Any]:
        state = self._connectors.get(name)
        recorded = self._rewind.attempted(recorded)
        results = self._rewind.keep_history(state, recorded)
        if not any(table["code"] for table in results):
            with self._connectors.change():
                self._must_be_stopped(name, is_rewinding=True)
                self._rewind.announce(name, recorded)
            results = self._rewind.take_tables_back(state, recorded)
        is_done = not any(table["code"] for table in results)
        if is_done:
            with self._connectors.change():
                self._must_be_stopped(name, is_rewinding=True)
                self._rewind.finish(name, recorded)
            released = self._rewind.release_history(state, recorded)
            failed = {table["table"]: table for table in released if table["code"]}
            results = [failed.get(table["table"], table) for table in results]
            is_done = not failed
        if is_done:
            with self._connectors.change():
                self._rewind.end(name, recorded, "done")
        report = _rewound(name, recorded.asked, _shown(recorded), is_begun=not is_done)
        return {**report, "applied": is_done, "results": results}

    def _cancel_rewind(self, name: str, recorded: RewindRecord) -> Mapping[str, Any]:
        results = self._rewind.cancel(self._connectors.get(name), recorded)
        is_cancelled = not any(table["code"] for table in results)
        if is_cancelled:
            with self._connectors.change():
                self._must_be_stopped(name, is_rewinding=True)
                self._rewind.end(name, recorded, "cancelled")
        report = _rewound(name, recorded.asked, _shown(recorded), is_begun=not is_cancelled)
        return {**report, "cancelled": is_cancelled, "results": results}

    def _await_stopped(self, name: str) -> None:
        """Wait, bounded, for the tasks of a connector that was stopped just now."""
        pause = threading.Event()
        for _ in range(STOP_POLLS_MAX):
            state = self._connectors.get(name)
            if state.target != "STOPPED" or _has_ended(state):
                return
            pause.wait(STOP_POLL_S)

    def _must_be_stopped(self, name: str, *, is_rewinding: bool = False) -> None:
        state = self._connectors.get(name)
        if state.rewind is not None and not is_rewinding:
            raise ConflictError(UNFINISHED.format(name=name), connector=name)
        if state.target != "STOPPED":
            raise NotAllowedError(STOP_FIRST.format(name=name))
        if not _has_ended(state):
            raise ConflictError(
                f"Connector {name} is still being stopped; try again in a moment", connector=name
            )


class ValidThroughReset:
    """Resets the VTTS of stopped connectors.

    Args:
        offset_events: announces it in the control topic.
        fence_coordinator: a coordinator of the connector that is frozen sends no event after it.
        requests: to the coordinator process.
    """

    def __init__(
        self,
        offset_events: OffsetEvents,
        admin: KafkaAdmin,
        fence_coordinator: Callable[[ConnectorConfig], None],
        requests: ChildRequests,
    ) -> None:
        self._offset_events = offset_events
        self._admin = admin
        self._fence_coordinator = fence_coordinator
        self._requests = requests

    def run(
        self,
        state: StoredConnector,
        config: ConnectorConfig,
        tables: Sequence[str],
        reason: str,
        is_applied: bool,
    ) -> dict[str, Any]:
        """Show which tables hold claims, or withdraw them; see ``StoppedConnectors``."""
        if is_applied:
            self._fence_coordinator(config)
        ends = self._admin.high_watermarks(self._admin.partitions(config.control_topic))
        answer = self._requests.ask(
            "coordinator",
            {
                "op": "reset_valid_through",
                "connector": state.name,
                "config": dict(state.config or {}),
                "tables": sorted({*config.tables, *tables}),
                "reason": reason,
                # tasks and coordinator are fenced: what they sent is below these offsets
                "control_ends": {str(tp.partition): end for tp, end in ends.items()},
                "apply": is_applied,
            },
        )
        is_done = is_applied and all(t["code"] is None for t in answer["tables"])
        error = answer.get("error")
        if is_done and error is None:
            self._offset_events.announce_reset(state)
        return {
            "connector": state.name,
            "applied": is_done and error is None,
            "reason": reason,
            "tables": answer["tables"],
            "error": error,
        }


def _is_open(plan: Mapping[str, Any]) -> bool:
    """Return whether a problem of the plan is not accepted."""
    return any(not problem["accepted"] for problem in plan["problems"])


def _shown(recorded: RewindRecord) -> dict[str, Any]:
    """Return a recorded rewind in the form of a plan."""
    return {
        "commit": recorded.commit,
        "source_offsets": [[t, p, None, to] for t, p, to in recorded.offsets],
        "tables": [
            {"table": table, "target_snapshot_id": target}
            for table, target in recorded.tables.items()
        ],
        "problems": [],
        "says": ["this rewind was begun before and is not finished"],
    }


def _rewound(
    name: str, asked: Mapping[str, Any], plan: Mapping[str, Any], *, is_begun: bool = False
) -> dict[str, Any]:
    return {
        "connector": name,
        "applied": False,
        "cancelled": False,
        "begun": is_begun,
        "asked": dict(asked),
        "results": [],
        **plan,
    }


def _has_ended(state: StoredConnector) -> bool:
    """Return whether no task of a stopped connector can write any more."""
    return state.layout is None or (not state.layout.tasks and state.is_ready)
