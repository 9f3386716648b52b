from hypothesis import given
from hypothesis import strategies as st

from connect.model.layout import Layout, TopicPartition, spread
from connect.state import topic_records as stored
from connect.state.connector_state import ConfigState, StoredConnector
from connect.state.visible_tasks import (
    VISIBLE_TASKS_MAX,
    layout_task_of,
    visible_task_configs,
    visible_task_count,
    visible_task_partitions,
)

CONFIG = {"name": "c", "topics": "t", "tasks.max": "3"}


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


def stored_connector(layout: Layout, config: dict[str, str] = CONFIG) -> StoredConnector:
    folded = ConfigState()
    for key, value in stored.layout_records(layout, config):
        folded.apply(key, stored.decode(stored.encode(value)))
    return folded.get("c")


def of(*, tasks: int, tasks_max: int, count: int = 4) -> Layout:
    made = spread("c", 1, partitions(count), tasks=tasks)
    return Layout("c", 1, made.tasks, tasks_max=tasks_max)


def test_a_connector_has_tasks_max_tasks_on_any_number_of_nodes() -> None:
    """Also with fewer partitions; none without a layout."""
    for tasks in (1, 2, 3):
        assert visible_task_count(stored_connector(of(tasks=tasks, tasks_max=3))) == 3
    assert visible_task_count(stored_connector(of(tasks=1, tasks_max=3, count=1))) == 3
    assert visible_task_count(stored_connector(Layout("c", 1, ((),), tasks_max=3))) == 3
    assert visible_task_count(stored_connector(Layout("c", 1, (), tasks_max=3))) == 0
    assert visible_task_count(StoredConnector("c")) == 0


def test_a_layout_of_an_older_version_has_the_tasks_of_its_configuration() -> None:
    """A placeholder in it is not resolved: the tasks are those of the layout."""
    layout = of(tasks=2, tasks_max=0)
    assert all("icefloe.tasks-max" not in (v or {}) for _, v in stored.layout_records(layout, {}))
    assert visible_task_count(stored_connector(layout)) == 3
    for config in ({}, {"tasks.max": "${env:N}"}, {"tasks.max": "1"}):
        assert visible_task_count(stored_connector(layout, config)) == 2


def test_the_number_of_tasks_is_bounded() -> None:
    """Every task costs an entry in each status and a record of the status topic."""
    state = stored_connector(of(tasks=2, tasks_max=2**31 - 1))
    assert visible_task_count(state) == VISIBLE_TASKS_MAX
    assert len(visible_task_configs(state)) == VISIBLE_TASKS_MAX


@given(st.integers(0, 40), st.integers(1, 8), st.integers(1, 24))
def test_the_tasks_share_the_partitions(count: int, units: int, tasks_max: int) -> None:
    """Each partition has one task, which is run where the layout reads the partition."""
    made = spread("c", 1, partitions(count), tasks=min(units, tasks_max))
    layout = made if made.tasks else Layout("c", 1, ((),))
    shares = [visible_task_partitions(task, tasks_max, layout) for task in range(tasks_max)]
    assert sorted(tp for share in shares for tp in share) == partitions(count)
    for task, share in enumerate(shares):
        assert {*share} <= {*layout.tasks[layout_task_of(task, layout)]}
    sizes = [len(share) for share in shares]
    if tasks_max % len(layout.tasks) == 0:
        assert max(sizes) - min(sizes) <= 1


def test_the_configuration_of_a_task_names_its_partitions() -> None:
    """As a layout of that many tasks would be stored."""
    found = visible_task_configs(stored_connector(of(tasks=2, tasks_max=4, count=6)))
    alone = stored_connector(of(tasks=4, tasks_max=4, count=6))
    assert found == dict(enumerate(dict(config) for config in alone.task_configs))
    assert found[3]["task.id"] == "3"
    assert found[3]["icefloe.partitions"] == '[["t",3]]'
    assert visible_task_configs(StoredConnector("c")) == {}
