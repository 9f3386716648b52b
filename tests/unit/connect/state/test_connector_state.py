import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.model.layout import Layout, TopicPartition, spread
from connect.protocol.source_end import SourceEnd, selection_of
from connect.protocol.source_floor import RecreatedTopic, SourceFloor
from connect.state import connector_state
from connect.state import topic_records as stored
from connect.state.connector_state import ConfigState
from connect.state.rewind_record import RewindChoice, RewindRecord
from connect.state.status_state import Status, StatusState
from connect.state.topic_records import Record

CONFIG = {"name": "c", "topics": "t", "password": "${file:secrets:p}"}


def layout(number: int, *, tasks: int, partitions: int = 4) -> Layout:
    return spread("c", number, [TopicPartition("t", p) for p in range(partitions)], tasks=tasks)


def fold(records: list[Record]) -> ConfigState:
    folded = ConfigState()
    for key, value in records:
        folded.apply(key, stored.decode(stored.encode(value)))
    return folded


def compacted(records: list[Record]) -> list[Record]:
    """What the broker's cleaner leaves: the last record of each key, in their order."""
    last = {key: position for position, (key, _) in enumerate(records)}
    return [r for position, r in enumerate(records) if last[r[0]] == position]


def test_configuration_is_kept_exactly_as_sent() -> None:
    """With placeholders and unusual values."""
    connector = fold(stored.config_records("c", CONFIG, "STOPPED")).get("c")
    assert connector.config == CONFIG
    assert connector.target == "STOPPED"


@pytest.mark.parametrize("target", stored.TARGET_STATES)
def test_target_state_has_the_form_of_both_versions(target: stored.TargetState) -> None:
    """Workers before 3.5 read ``state`` alone and know no STOPPED."""
    key, value = stored.target_record("c", target)
    assert key == "target-state-c"
    assert value == {"state": "PAUSED" if target == "STOPPED" else target, "state.v2": target}


def test_the_target_state_of_an_old_worker_is_read() -> None:
    """A record without ``state.v2``."""
    folded = fold([*stored.config_records("c", CONFIG), ("target-state-c", {"state": "PAUSED"})])
    assert folded.get("c").target == "PAUSED"


def test_a_stopped_connector_that_is_paused_has_no_tasks_until_it_is_resumed() -> None:
    """As in Kafka: a stop removes the tasks, and only a start configures new ones."""
    folded = fold(
        [*stored.config_records("c", CONFIG), *stored.layout_records(layout(1, tasks=2), CONFIG)]
    )
    seen = []
    for target in ("PAUSED", "STOPPED", "PAUSED", "STARTED", "PAUSED"):
        folded.apply(*stored.target_record("c", target))
        seen.append(folded.get("c").is_stopped)
    assert seen == [False, True, True, False, False]


def test_a_layout_is_valid_with_its_commit_record() -> None:
    """Task configurations without it change only the next number."""
    first = list(stored.layout_records(layout(1, tasks=2), CONFIG))
    second = list(stored.layout_records(layout(2, tasks=4), CONFIG))
    connector = fold([*stored.config_records("c", CONFIG), *first, *second[:-1]]).get("c")
    assert connector.layout == layout(1, tasks=2)
    assert connector.number_max == 2
    assert fold([*first, *second]).get("c").layout == layout(2, tasks=4)


def test_a_layout_is_ready_only_with_its_own_number() -> None:
    """A ready record of an older layout does not start a newer one."""
    records = [
        *stored.layout_records(layout(1, tasks=2), CONFIG),
        stored.ready_record(layout(1, tasks=2), 2),
    ]
    assert fold(records).get("c").is_ready
    records += stored.layout_records(layout(2, tasks=2), CONFIG)
    assert not fold(records).get("c").is_ready
    assert not fold(compacted(records)).get("c").is_ready


def test_an_incomplete_layout_in_a_compacted_topic_is_ignored() -> None:
    """A newer uncommitted layout replaced its task records."""
    records = [
        *stored.layout_records(layout(1, tasks=2), CONFIG),
        *list(stored.layout_records(layout(2, tasks=2), CONFIG))[:-1],
    ]
    connector = fold(compacted(records)).get("c")
    assert connector.layout is None
    assert connector.number_max == 2


def test_task_ids_to_fence_survive_smaller_layouts_and_deletion() -> None:
    """The next leader knows every transactional id."""
    records = [
        *stored.config_records("c", CONFIG),
        *stored.layout_records(layout(1, tasks=4), CONFIG),
        *stored.layout_records(layout(2, tasks=1), CONFIG),
        stored.ready_record(layout(2, tasks=1), 4),
    ]
    assert fold(compacted(records)).get("c").tasks_ever == 4
    records += connector_state.deletion_records(fold(records).get("c"))
    connector = fold(compacted([*records, *stored.config_records("c", CONFIG)])).get("c")
    assert connector.tasks_ever == 4
    assert connector.number_max == 2
    assert connector.layout is None
    assert not connector.is_ready


def test_a_deleted_connector_leaves_only_its_numbers() -> None:
    """Only numbering is left, and it makes no connector."""
    records = [*stored.config_records("c", CONFIG), *stored.layout_records(layout(1, tasks=2), {})]
    folded = fold([*records, *connector_state.deletion_records(fold(records).get("c"))])
    assert folded.names() == []
    assert folded.get("c").config is None
    assert folded.get("c").layout is None


def test_an_empty_layout_has_a_number() -> None:
    """The layout of a stopped connector."""
    connector = fold(list(stored.layout_records(Layout("c", 3, ()), CONFIG))).get("c")
    assert connector.layout == Layout("c", 3, ())


def test_a_layout_keeps_the_ids_of_its_topics() -> None:
    """In the commit record, also without tasks."""
    for tasks in ((), ((TopicPartition("t", 0),),)):
        whole_layout = Layout("c", 3, tasks, (("control", "i1"), ("t", "i2")), ("i0",), ((0, 7),))
        assert (
            fold(list(stored.layout_records(whole_layout, CONFIG))).get("c").layout == whole_layout
        )
        assert Layout.from_json(whole_layout.to_json()) == whole_layout


def test_names_with_dashes_and_digits_are_distinguished() -> None:
    """The last dash of a key separates name and number."""
    folded = ConfigState()
    assert folded.apply("task-a-0-1", {"properties": {stored.LAYOUT_KEY: "1"}}) == "a-0"
    assert folded.apply("connector-a-0", {"properties": {}}) == "a-0"
    assert folded.apply("task-a", {"properties": {}}) is None


def test_java_task_configs_are_no_layout() -> None:
    """They have no partitions, so a layout is made before a start."""
    found = fold([("task-c-0", {"properties": {"topics": "t"}}), ("commit-c", {"tasks": 1})])
    assert found.get("c").layout is None
    assert found.get("c").tasks_ever == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session-key", {"key": "x"}),
        ("connector-c", {"properties": None}),
        ("connector-", {"properties": {}}),
        ("target-state-c", {"state": "DANCING"}),
        ("commit-c", {"tasks": "many", "icefloe.layout": 1}),
        ("task-c-x", {"properties": {}}),
        ("logger-cluster-x", {"level": "INFO"}),
    ],
)
def test_foreign_records_are_skipped(key: str, value: dict[str, object]) -> None:
    """Records of other products or versions."""
    folded = fold([*stored.config_records("c", CONFIG), (key, value)])
    assert folded.names() == ["c"]
    assert folded.get("c").layout is None


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_compaction_does_not_change_the_state(steps: list[tuple[int, bool, bool]]) -> None:
    """Layout, number and ids to fence are equal for a history and its compacted form."""
    records: list[Record] = [*stored.config_records("c", CONFIG)]
    for number, (tasks, is_ready, is_deleted) in enumerate(steps, start=1):
        expected = layout(number, tasks=tasks)
        records += stored.layout_records(expected, CONFIG)
        if is_ready:
            records.append(stored.ready_record(expected, fold(records).get("c").tasks_ever))
        if is_deleted:
            records += connector_state.deletion_records(fold(records).get("c"))
    full, small = fold(records).get("c"), fold(compacted(records)).get("c")
    assert (full.config, full.layout, full.ready) == (small.config, small.layout, small.ready)
    assert full.number_max == small.number_max
    assert full.tasks_ever == small.tasks_ever


def test_task_properties_have_configuration_and_partitions() -> None:
    """The form of ``GET /connectors/{c}/tasks``."""
    records = dict(stored.layout_records(layout(5, tasks=2, partitions=3), CONFIG))
    task = records["task-c-0"]
    assert task is not None
    assert task["properties"]["icefloe.layout"] == "5"
    assert json.loads(task["properties"]["icefloe.partitions"]) == [["t", 0], ["t", 2]]
    assert stored.task_base_config(task["properties"]) == CONFIG
    assert records["commit-c"] == {"tasks": 2, "icefloe.layout": 5}


def test_statuses_are_kept_per_connector_and_task() -> None:
    """Keys and fields are Kafka Connect's."""
    folded = StatusState()
    folded.apply("status-connector-c", Status("RUNNING", None, "w:1", 3, "1").to_json())
    folded.apply("status-task-c-0", Status("FAILED", "why", "w:1", 3, "1").to_json())
    folded.apply("status-task-c-1-0", Status("RUNNING", None, "w:1").to_json())
    assert folded.connector("c") == Status("RUNNING", None, "w:1", 3, "1")
    assert folded.tasks("c") == {0: Status("FAILED", "why", "w:1", 3, "1")}
    folded.apply("status-task-c-0", None)
    assert folded.tasks("c") == {}


def test_active_topics_are_added_and_removed() -> None:
    """With Kafka Connect's key of topic and connector."""
    folded = StatusState()
    folded.apply("status-topic-t:connector-c", {"topic": {"name": "t"}})
    assert folded.topics("c") == {"t"}
    folded.apply("status-topic-t:connector-c", None)
    assert folded.topics("c") == frozenset()


def test_read_partitions_are_stored_until_the_connector_is_deleted() -> None:
    """They survive compaction; a tombstone clears them, invalid records do not."""
    floor = SourceFloor(
        {TopicPartition("t", 0): 7},
        {"t": "i1"},
        starts={TopicPartition("t", 1): 3},
        control={TopicPartition("t", 0): 99},
        control_topic_id="i9",
        recreated={"t": RecreatedTopic("i1", ("i0",), {0: 5}, is_pending=True)},
    )
    written = [*stored.config_records("c", CONFIG), stored.source_record("c", floor)]
    connector = fold(compacted(written)).get("c")
    assert connector.source_floor == floor
    folded = fold(written)
    assert folded.apply("icefloe-source-c", {"offsets": [["t", "x", 1]]}) is None
    assert folded.get("c").source_floor == floor
    deleted = fold([*written, *connector_state.deletion_records(connector)])
    assert deleted.get("c").source_floor == SourceFloor()
    assert ("icefloe-source-c", None) in connector_state.deletion_records(connector)
    assert fold([*written, stored.source_record("c", SourceFloor())]).get("c").source_floor == (
        SourceFloor()
    )


def bounded(config: dict[str, str], *, is_completed: bool) -> Record:
    end = SourceEnd(selection_of(config), {TopicPartition("t", 0): 7})
    return stored.end_record("c", end.completed_with(config) if is_completed else end)


def test_a_completed_run_belongs_to_its_configuration() -> None:
    """In any order of records; another configuration runs again."""
    config = {**CONFIG, "icefloe.end": "latest"}
    end, configs = bounded(config, is_completed=True), stored.config_records("c", config)
    for records in ([*configs, end], [end, *configs]):
        connector = fold(records).get("c")
        assert (connector.is_completed, connector.is_to_run) == (True, False)
    changed = fold([*configs, end, *stored.config_records("c", {**config, "tasks.max": "2"})])
    assert changed.get("c").is_to_run
    assert changed.get("c").end is not None


def test_a_bounded_run_that_is_not_completed_keeps_its_end() -> None:
    """Over a stop and other changes, until the connector is deleted."""
    config = {**CONFIG, "icefloe.end": "latest"}
    records = [
        *stored.config_records("c", config),
        bounded(config, is_completed=False),
        stored.target_record("c", "STOPPED"),
        stored.target_record("c", "STARTED"),
    ]
    connector = fold(records).get("c")
    assert connector.is_to_run
    assert connector.end == SourceEnd(selection_of(config), {TopicPartition("t", 0): 7})
    assert fold([*records, *connector_state.deletion_records(connector)]).get("c").end is None


@pytest.mark.parametrize("value", [{}, {"selection": 1, "offsets": []}, {"selection": {}}])
def test_an_end_that_cannot_be_parsed_is_skipped(value: dict[str, object]) -> None:
    """The topic may have keys of another product."""
    folded = fold([*stored.config_records("c", CONFIG), ("icefloe-end-c", value)])
    assert folded.get("c").end is None


def test_a_rewind_is_read_as_it_was_written() -> None:
    """A record of any form stops the start of the connector, also one that lacks fields."""
    commit = {"committed_at": "2026-01-01T00:00:00Z", "control_offsets": {"0": 7}}
    asked = RewindChoice(snapshot_id=5, accepted=["records_gone"]).to_json()
    record = RewindRecord(
        "r2",
        "connect-c",
        asked,
        commit,
        {"db.a": 1, "db.b": None},
        (("t", 0, 3),),
        may_have_expired=True,
        replaced=("r1",),
        step="tables",
    )
    state = ConfigState()
    for written in (record, RewindRecord("of another form")):
        key, value = stored.rewind_record("c", written.to_json())
        state.apply(key, json.loads(json.dumps(value)))
        assert state.get("c").rewind == written
    assert record.to_json()["cut"] == {"0": 7}
    for other in ({}, {"id": "r", "offsets": 5}, {"offsets": [["t", 0]]}):
        state.apply(key, other)
        assert state.get("c").rewind is not None
    state.apply(key, None)
    assert state.get("c").rewind is None
