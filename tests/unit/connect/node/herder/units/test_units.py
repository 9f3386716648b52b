from dataclasses import replace

import pytest

from connect.backoff import BackoffPolicy
from connect.model.layout import Layout, TopicPartition
from connect.node.herder.units.status_publisher import LocalNode, StoredStatuses, connector_status
from connect.node.herder.units.units import ConnectorRun, Phase, TargetUnits, signature
from connect.protocol.source_end import SourceEnd, selection_of
from connect.state.connector_state import Restart, StoredConnector
from connect.state.placement import Places
from connect.state.status_state import Running, Status

LAYOUT = Layout("c", 1, ((TopicPartition("t", 0),), (TopicPartition("t", 1),)))
TARGET = TargetUnits(LAYOUT, {"topics": "t"}, frozenset({0, 1}), has_coordinator=True)
POLICY = BackoffPolicy(first_ms=10, longest_ms=100, restarts_max=2)


def state(**more: object) -> StoredConnector:
    known = {"config": {"topics": "t"}, "layout": LAYOUT, "ready": 1, **more}
    return StoredConnector("c", **known)  # type: ignore[arg-type]


def run() -> ConnectorRun:
    connector_run = ConnectorRun.of("c", POLICY)
    connector_run.take(TARGET)
    for unit in connector_run.units():
        unit.to("RUNNING")
    return connector_run


def displayed(
    what: StoredConnector, of: ConnectorRun | None, *, has_worker: bool = True
) -> tuple[str, list[str]]:
    status = connector_status(what, of, StoredStatuses(), LocalNode("w:1", has_worker=has_worker))
    return status.state, [task.state for task in status.tasks]


def test_the_target_state_is_visible_at_once() -> None:
    """PAUSED and STOPPED, also while units still run."""
    assert displayed(state(target="PAUSED"), run()) == ("PAUSED", ["PAUSED", "PAUSED"])
    assert displayed(state(target="STOPPED"), run()) == ("STOPPED", [])
    assert displayed(state(target="PAUSED", is_stopped=True), run()) == ("PAUSED", [])


def test_a_resumed_connector_is_running_if_a_worker_is_ready() -> None:
    """Without a worker its tasks are UNASSIGNED."""
    fresh = ConnectorRun.of("c", POLICY)
    assert displayed(state(), fresh) == ("RUNNING", ["RUNNING", "RUNNING"])
    assert displayed(state(), fresh, has_worker=False) == ("RUNNING", ["UNASSIGNED", "UNASSIGNED"])


def test_a_new_connector_has_no_tasks_until_its_layout_is_ready() -> None:
    """As in Kafka, where tasks appear when they are configured."""
    assert displayed(state(ready=None), ConnectorRun.of("c", POLICY)) == ("RUNNING", [])
    assert displayed(state(layout=None, ready=None), None) == ("UNASSIGNED", [])


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("IDLE", "RUNNING"),
        ("WAITING", "UNASSIGNED"),
        ("STARTING", "RUNNING"),
        ("RESTARTING", "RESTARTING"),
        ("RUNNING", "RUNNING"),
        ("STOPPING", "RUNNING"),
    ],
)
def test_phases_have_states_that_clients_know(phase: Phase, expected: str) -> None:
    """Only states of Kafka Connect."""
    connector_run = run()
    connector_run.tasks[1].to(phase)
    assert displayed(state(), connector_run) == ("RUNNING", ["RUNNING", expected])


def test_tasks_without_a_ready_layout_are_not_running() -> None:
    """They are stopped, and the new layout cannot be completed without the broker."""
    connector_run = run()
    connector_run.job.retry_at_ms = 5
    connector_run.tasks[0].to("IDLE")
    assert displayed(state(), connector_run) == ("RUNNING", ["UNASSIGNED", "RUNNING"])


def test_a_failed_coordinator_is_a_failed_connector() -> None:
    """Its trace is that of the connector, unless the configuration cannot run."""
    connector_run = run()
    connector_run.coordinator.failed(0, trace="why", is_retriable=False)
    status = connector_status(
        state(), connector_run, StoredStatuses(), LocalNode("w:1", has_worker=True)
    )
    assert (status.state, status.trace) == ("FAILED", "why")
    reported = StoredStatuses(problem="configuration")
    displayed = connector_status(
        state(), connector_run, reported, LocalNode("w:1", has_worker=True)
    )
    assert (displayed.state, displayed.trace) == ("FAILED", "configuration")


def test_the_trace_of_a_running_unit_has_what_it_waits_for() -> None:
    """An error precedes it."""
    connector_run = run()
    connector_run.tasks[0].waits_for = "2 members of consumer group g to leave"
    connector_run.tasks[1].to("WAITING")
    connector_run.coordinator.waits_for = "the catalog"
    connector_run.job.waits_for = "w:2 to stop its tasks"
    status = connector_status(
        state(), connector_run, StoredStatuses(), LocalNode("w:1", has_worker=True)
    )
    assert status.trace == "waiting for w:2 to stop its tasks\nwaiting for the catalog"
    assert [task.trace for task in status.tasks] == [
        "waiting for 2 members of consumer group g to leave",
        "waiting for the worker process to start",
    ]
    connector_run.tasks[0].failed(0, trace="why", is_retriable=True)
    status = connector_status(
        state(), connector_run, StoredStatuses(), LocalNode("w:1", has_worker=True)
    )
    assert status.tasks[0].trace == "why"
    connector_run.tasks[0].to("RUNNING")
    status = connector_status(
        state(), connector_run, StoredStatuses(), LocalNode("w:1", has_worker=True)
    )
    assert status.tasks[0].trace is None


def test_retriable_failures_are_restarted_up_to_the_limit() -> None:
    """With growing pauses; then the unit stays failed."""
    unit = run().tasks[0]
    planned = []
    for now_ms in (0, 100, 200):
        unit.failed(now_ms, trace="x", is_retriable=True)
        planned.append(unit.restart_at_ms)
    assert planned == [10, 120, None]
    unit.failed(0, trace="x", is_retriable=False)
    assert unit.restart_at_ms is None


def test_tasks_that_continue_keep_their_count_of_restarts() -> None:
    """A new layout does not reset the back-off."""
    connector_run = run()
    connector_run.tasks[0].backoff.failed(0)
    connector_run.take(replace(TARGET, layout=replace(LAYOUT, number=2), tasks=frozenset({0})))
    assert list(connector_run.tasks) == [0]
    assert connector_run.tasks[0].backoff.restarts == 1


def test_a_failure_survives_a_pause_and_not_a_stop() -> None:
    """As in Kafka."""
    connector_run = run()
    connector_run.tasks[0].failed(0, trace="why", is_retriable=False)
    connector_run.tasks[1].failed(0, trace="again", is_retriable=True)
    connector_run.rest(is_paused=True)
    assert displayed(state(target="PAUSED"), connector_run) == ("PAUSED", ["FAILED", "PAUSED"])
    connector_run.rest(is_paused=True)
    assert connector_run.paused_layout == LAYOUT
    connector_run.take(TARGET)
    assert [unit.phase for unit in connector_run.tasks.values()] == ["FAILED", "IDLE"]
    connector_run.rest(is_paused=False)
    connector_run.take(TARGET)
    assert [unit.phase for unit in connector_run.tasks.values()] == ["IDLE", "IDLE"]


def test_tables_keep_their_last_outcome() -> None:
    """Also a table that is written once a day."""
    connector_run = run()
    for number in range(200):
        name = "db.seldom" if number == 0 else "db.often"
        tables = [{"table": name, "snapshot_id": number}]
        connector_run.reports.received_round(
            {"event": "round", "connector": "c", "tables": tables}, number
        )
    assert [(t["table"], t["ended_ms"]) for t in connector_run.reports.tables()] == [
        ("db.often", 199),
        ("db.seldom", 0),
    ]


def test_a_signature_contains_all_inputs_of_a_job() -> None:
    """An equal signature needs no job; any difference does."""
    seen = {
        signature(state()),
        signature(state(config={"topics": "u"})),
        signature(state(target="PAUSED")),
        signature(state(ready=None)),
        signature(state(layout=None)),
        signature(state(places=Places("w:1"))),
        signature(state(restart=Restart("again"))),
    }
    assert len(seen) == 7
    assert signature(state()) == signature(state(revision=9))


def test_units_of_other_nodes_have_the_reported_status() -> None:
    """From the status topic, unless it is of an earlier layout."""
    placed = state(places=Places("w:2", ("w:1", "w:2")))
    failed = Status("FAILED", "why", "w:2", 1)
    reported = StoredStatuses(Status("RUNNING", "tables", "w:2", 1), {1: failed})
    status = connector_status(placed, run(), reported, LocalNode("w:1", has_worker=True))
    assert (status.state, status.trace, status.worker_id) == ("RUNNING", "tables", "w:2")
    assert [(t.state, t.worker_id, t.trace) for t in status.tasks] == [
        ("RUNNING", "w:1", None),
        ("FAILED", "w:2", "why"),
    ]
    for stale in (replace(failed, worker_id="w:3"), replace(failed, generation=0)):
        later = connector_status(
            placed,
            run(),
            StoredStatuses(None, {1: stale}),
            LocalNode("w:1", has_worker=True),
        )
        assert [task.state for task in later.tasks] == ["RUNNING", "RUNNING"]
    paused = replace(placed, target="PAUSED")
    displayed = connector_status(paused, run(), reported, LocalNode("w:1", has_worker=True))
    assert [task.state for task in displayed.tasks] == ["PAUSED", "FAILED"]


def test_tasks_of_the_api_have_the_status_of_the_task_that_runs_them() -> None:
    """State, node and trace; on this node and on others; also paused and completed."""
    local = LocalNode("w:1", has_worker=True)
    five = replace(LAYOUT, tasks_max=5)
    placed = state(layout=five, places=Places("w:1", ("w:1", "w:2")))
    made = run()
    made.tasks[0].failed(0, trace="why", is_retriable=False)
    reported = StoredStatuses(None, {1: Status("RUNNING", "waiting", "w:2", 1)})
    status = connector_status(placed, made, reported, local)
    assert [(t.id, t.state, t.worker_id, t.trace, t.runs_in) for t in status.tasks] == [
        (0, "FAILED", "w:1", "why", None),
        (1, "RUNNING", "w:2", "waiting", None),
        (2, "FAILED", "w:1", "why", 0),
        (3, "RUNNING", "w:2", "waiting", 1),
        (4, "FAILED", "w:1", "why", 0),
    ]
    of_older = {1: Status("RUNNING", "", "w:2", 1), 3: Status("FAILED", "old", "w:3", 1)}
    again = connector_status(placed, made, StoredStatuses(None, of_older), local)
    assert [t.state for t in again.tasks] == ["FAILED", "RUNNING"] * 2 + ["FAILED"]
    paused = connector_status(replace(placed, target="PAUSED"), made, reported, local)
    assert [t.state for t in paused.tasks] == ["FAILED", "PAUSED"] * 2 + ["FAILED"]
    config = {"topics": "t"}
    end = SourceEnd(selection_of(config), {}).completed_with(config)
    completed = connector_status(replace(placed, end=end), made, reported, local)
    assert [t.state for t in completed.tasks] == ["COMPLETED"] * 5


def test_a_node_runs_the_placed_units_of_a_ready_layout() -> None:
    """None of a paused connector, and no new ones until the layout is ready."""
    config = {"topics": "t", "task.id": "0"}
    placed = state(places=Places("w:2", ("w:1", "w:2")), task_configs=(config, config))
    assert TargetUnits.of(placed, "w:1") == TargetUnits(LAYOUT, {"topics": "t"}, frozenset({0}))
    assert TargetUnits.of(placed, "w:2") == replace(TARGET, tasks=frozenset({1}))
    assert TargetUnits.of(placed, "w:3") == TargetUnits(LAYOUT, {"topics": "t"})
    assert TargetUnits.of(replace(placed, target="PAUSED"), "w:1") == TargetUnits()
    assert TargetUnits.of(replace(placed, config=None), "w:1") == TargetUnits()
    assert TargetUnits.of(replace(placed, ready=None), "w:1") is None
    assert TargetUnits.of(replace(placed, places=None), "w:1") is None


def test_running_units_exclude_ended_and_finally_failed_ones() -> None:
    """Other nodes wait for running units, and must not wait for units that never end."""
    connector_run = run()
    assert connector_run.running() == Running(1, frozenset({0, 1}), coordinator=True)
    connector_run.tasks[1].failed(0, trace="why", is_retriable=False)
    assert connector_run.running([connector_run.tasks[0]]) == Running(1, coordinator=True)
    assert connector_run.running(connector_run.units()) is None
