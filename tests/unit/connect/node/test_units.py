from dataclasses import replace

import pytest

from connect.model.layout import Layout, TopicPartition
from connect.node.herder.connector_status import LocalNode, StoredStatuses, connector_status
from connect.node.herder.target_units import TargetUnits, signature
from connect.node.herder.units import ConnectorRun, Phase
from connect.processes.backoff import BackoffPolicy
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
    made = ConnectorRun.of("c", POLICY)
    made.take(TARGET)
    for unit in made.units():
        unit.to("RUNNING")
    return made


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
    made = run()
    made.tasks[1].to(phase)
    assert displayed(state(), made) == ("RUNNING", ["RUNNING", expected])


def test_tasks_without_a_ready_layout_are_not_running() -> None:
    """They are stopped, and the new layout cannot be completed without the broker."""
    made = run()
    made.job.retry_at_ms = 5
    made.tasks[0].to("IDLE")
    assert displayed(state(), made) == ("RUNNING", ["UNASSIGNED", "RUNNING"])


def test_a_failed_coordinator_is_a_failed_connector() -> None:
    """Its trace is that of the connector, unless the configuration cannot run."""
    made = run()
    made.coordinator.failed(0, trace="why", is_retriable=False)
    status = connector_status(state(), made, StoredStatuses(), LocalNode("w:1", has_worker=True))
    assert (status.state, status.trace) == ("FAILED", "why")
    reported = StoredStatuses(problem="configuration")
    displayed = connector_status(state(), made, reported, LocalNode("w:1", has_worker=True))
    assert (displayed.state, displayed.trace) == ("FAILED", "configuration")


def test_the_trace_of_a_running_unit_has_what_it_waits_for() -> None:
    """An error precedes it."""
    made = run()
    made.tasks[0].waits_for = "2 members of consumer group g to leave"
    made.tasks[1].to("WAITING")
    made.coordinator.waits_for = "the catalog"
    made.job.waits_for = "w:2 to stop its tasks"
    status = connector_status(state(), made, StoredStatuses(), LocalNode("w:1", has_worker=True))
    assert status.trace == "waiting for w:2 to stop its tasks\nwaiting for the catalog"
    assert [task.trace for task in status.tasks] == [
        "waiting for 2 members of consumer group g to leave",
        "waiting for the worker process to start",
    ]
    made.tasks[0].failed(0, trace="why", is_retriable=True)
    status = connector_status(state(), made, StoredStatuses(), LocalNode("w:1", has_worker=True))
    assert status.tasks[0].trace == "why"
    made.tasks[0].to("RUNNING")
    status = connector_status(state(), made, StoredStatuses(), LocalNode("w:1", has_worker=True))
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
    made = run()
    made.tasks[0].backoff.failed(0)
    made.take(replace(TARGET, layout=replace(LAYOUT, number=2), tasks=frozenset({0})))
    assert list(made.tasks) == [0]
    assert made.tasks[0].backoff.restarts == 1


def test_a_failure_survives_a_pause_and_not_a_stop() -> None:
    """As in Kafka."""
    made = run()
    made.tasks[0].failed(0, trace="why", is_retriable=False)
    made.tasks[1].failed(0, trace="again", is_retriable=True)
    made.rest(is_paused=True)
    assert displayed(state(target="PAUSED"), made) == ("PAUSED", ["FAILED", "PAUSED"])
    made.rest(is_paused=True)
    assert made.paused_layout == LAYOUT
    made.take(TARGET)
    assert [unit.phase for unit in made.tasks.values()] == ["FAILED", "IDLE"]
    made.rest(is_paused=False)
    made.take(TARGET)
    assert [unit.phase for unit in made.tasks.values()] == ["IDLE", "IDLE"]


def test_tables_keep_their_last_outcome() -> None:
    """Also a table that is written once a day."""
    made = run()
    for number in range(200):
        name = "db.seldom" if number == 0 else "db.often"
        tables = [{"table": name, "snapshot_id": number}]
        made.reports.received_round({"event": "round", "connector": "c", "tables": tables}, number)
    assert [(t["table"], t["ended_ms"]) for t in made.reports.tables()] == [
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
    made = run()
    assert made.running() == Running(1, frozenset({0, 1}), coordinator=True)
    made.tasks[1].failed(0, trace="why", is_retriable=False)
    assert made.running([made.tasks[0]]) == Running(1, coordinator=True)
    assert made.running(made.units()) is None
