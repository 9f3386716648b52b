"""Work of Spark tasks runs under the access policy of the node, in whichever process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connect.gateways.access_policy import AccessPolicy, access_policy, install
from tests.differential.support import config, plan
from tests.support.pipeline_lines import SCHEMA
from worker.aggregate.event_rows import event_rows
from worker.batch.pipeline_spec import PipelineSpec
from worker.batch.task_access_policy import under_policy
from worker.pipeline.passed_writing import write_passed
from worker.pipeline.pipeline import run

POLICY = AccessPolicy(is_guarded=True, names=frozenset({"a.example.com"}), has_ambient=False)


@pytest.fixture(autouse=True)
def restored_policy() -> Iterator[None]:
    """The policy of the process is its own again after each test."""
    yield
    install(AccessPolicy())


def made_under_policy(make: Callable[[], Callable[..., object]]) -> Callable[..., object]:
    """Return what a node with the policy makes, in a process without one."""
    install(POLICY)
    made = make()
    install(AccessPolicy())
    return made


def test_the_policy_travels_with_the_work() -> None:
    """Also through pickle; it holds before the work begins."""
    made = made_under_policy(lambda: under_policy(_policy))
    assert pickle.loads(pickle.dumps(made))(7) == (POLICY, 7)
    assert access_policy() == POLICY


def _policy(number: int) -> tuple[AccessPolicy, int]:
    return access_policy(), number


def test_functions_of_spark_tasks_install_the_policy(tmp_path: Path) -> None:
    """Of the pipeline, of rows that are passed on, and of aggregates."""
    spec = PipelineSpec(config(), (plan(tmp_path, SCHEMA),))
    reports: object = None
    for make in (
        lambda: run(spec),
        lambda: write_passed(spec),
        lambda: event_rows(spec, SCHEMA, reports),  # type: ignore[arg-type]
    ):
        made_under_policy(make)(iter(()))
        assert access_policy() == POLICY
