"""Which tables a rewind may plan for."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from connect.model.layout import TopicPartition
from coordinator.rewind.rewind_plan import RewindPlan
from coordinator.rewind.rewind_planner import RewindPlanner
from coordinator.rewind.rewind_request import RewindRequest
from tests.support.tables import connector


def test_tables_that_are_not_granted_are_neither_read_nor_planned() -> None:
    """A request names any table, and so do events of the control topic."""
    config = replace(connector("alice", ["alice.t", "shared.t"]), granted_tables="alice[.].*")
    asked: list[str] = []

    def find(name: str) -> None:
        asked.append(name)

    log = SimpleNamespace(starts=lambda: {0: 0}, read=lambda _: None)
    admin = SimpleNamespace(
        topics=dict, committed_all=lambda _: {}, watermarks=lambda _: {}, topic_id=lambda _: None
    )
    catalog = SimpleNamespace(find=find)
    planner = RewindPlanner(config, log, admin, catalog, {}, ())  # type: ignore[arg-type] # has what is called
    plan = planner.plan(RewindRequest(is_to_beginning=True, tables=("bob.t",)))
    assert asked == ["alice.t"]
    assert [(code, table) for code, _, table in plan.problems] == [
        ("not_granted", "bob.t"),
        ("not_granted", "shared.t"),
    ]
    assert not plan.rollbacks


MAPPED = {"iceberg__tables__topic_to_table_map": "a:db.a,b:db.b,more:db.a"}
TEMPLATE = {"iceberg__tables__name_template": "db.${topic}"}
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"


def planned(only: tuple[str, ...], tables: list[str], **keys: str) -> RewindPlan:
    """The plan to load some tables again; the connector has read three topics, and one is gone."""
    read = {TopicPartition(topic, p): 7 for topic in ("a", "b", "more", "gone") for p in range(2)}
    admin = SimpleNamespace(
        topics=lambda: dict.fromkeys(("a", "b", "more", "other"), 2),
        committed_all=lambda _: read,
        watermarks=lambda asked: dict.fromkeys(asked, (0, 9)),
    )
    log = SimpleNamespace(starts=lambda: {0: 0}, read=lambda _: None)
    catalog = SimpleNamespace(find=lambda _: None)
    config = connector("c", tables, topics="a,b,more", **keys)
    planner = RewindPlanner(config, log, admin, catalog, {}, ())  # type: ignore[arg-type] # has what is called
    return planner.plan(RewindRequest(is_to_beginning=True, only=only))


@pytest.mark.parametrize(
    ("only", "tables", "keys", "topics"),
    [
        (("db.a",), [], MAPPED, {"a", "more"}),
        (("db.a", "db.b"), [], MAPPED, {"a", "b", "more"}),
        (("db.b",), [], TEMPLATE, {"b"}),
        (("db.t",), ["db.t"], {}, {"a", "b", "more"}),
        (
            ("db.b",),
            [],
            {**TEMPLATE, "transforms": "f", "transforms__f__type": f"{ROUTER[:-11]}Flatten$Value"},
            {"b"},
        ),
    ],
)
def test_a_table_goes_back_with_its_topics(
    only: tuple[str, ...], tables: list[str], keys: dict[str, str], topics: set[str]
) -> None:
    """Source offsets of other topics stay."""
    plan = planned(only, tables, **keys)
    assert not plan.problems
    assert plan.positions == {TopicPartition(topic, p): 0 for topic in topics for p in range(2)}


@pytest.mark.parametrize(
    ("only", "tables", "keys", "named"),
    [
        (("db.c",), [], MAPPED, "no topic is read for db.c"),
        (("db.a",), ["db.a", "db.b"], {}, "a, b, more"),
        (("db.a",), [], {"iceberg__tables__topic_to_table_map": "a:db.a,b:db.b"}, "of more may"),
        (("db.a",), [], {"iceberg__tables__name_template": "db.${table}"}, "a, b, more"),
        (("db.a",), [], {"iceberg__tables__name_template": "db.${schema}"}, "a, b, more"),
        (
            ("db.a",),
            [],
            {"iceberg__tables__dynamic_enabled": "true", "iceberg__tables__route_field": "t"},
            "a, b, more",
        ),
        (
            ("db.a",),
            ["db.a"],
            {
                "iceberg__tables__route_field": "t",
                "iceberg__table__db__a__route_regex": "a",
            },
            "a, b, more",
        ),
        (
            ("db.a",),
            [],
            {
                **TEMPLATE,
                "transforms": "r",
                "transforms__r__type": ROUTER,
                "transforms__r__regex": "b",
                "transforms__r__replacement": "a",
            },
            "a, b, more",
        ),
    ],
)
def test_a_table_that_shares_topics_does_not_go_back_alone(
    only: tuple[str, ...], tables: list[str], keys: dict[str, str], named: str
) -> None:
    """Records of other tables would be written twice: nothing is changed."""
    (problem,) = planned(only, tables, **keys).problems
    assert problem[0] == "topics_shared"
    assert named in problem[1]
