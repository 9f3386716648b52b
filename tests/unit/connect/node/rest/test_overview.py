"""Values of the overview that no task measures, and configurations without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from connect.clock import SystemClock
from connect.node.node_requests import NodeInfo, ReportedStatus
from connect.node.rest.app import create_app
from connect.node.rest.log_levels import LogLevels
from connect.redaction.secret_values import MASK
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer


class FailingHerder(FakeHerder):
    """The first ``failed`` tasks of each connector have failed; the lag was 0 when they began."""

    failed = 0

    def status(self, name: str) -> ReportedStatus:
        """Return the status with failed tasks."""
        found = super().status(name)
        tasks = (replace(t, state="FAILED") if t.id < self.failed else t for t in found.tasks)
        return replace(found, tasks=tuple(tasks))

    def sums(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return the metrics of one connector."""
        return {"orders": {"lag_records": 0.0, "records_read": 7.0} if metrics else {}}


def test_no_task_measures_a_lag_if_all_have_failed() -> None:
    """It is null then, and not the last value; totals are kept."""
    herder = FailingHerder(LogLevels(SystemClock()))
    herder.create("orders", {"topics": "t", "tasks.max": "2"})
    with RestServer(
        create_app(herder.handlers, NodeInfo("http://n:1", "c"), LogLevels(SystemClock()))
    ) as server:
        for failed, lag in ((0, 0), (1, 0), (2, None)):
            herder.failed = failed
            reply = server.send("GET", "/icefloe/v1/overview", None, {})
            (connector,) = reply.json()["connectors"]
            assert (connector["not_in_files"], connector["records_read"]) == (lag, 7)


def test_a_configuration_is_shown_without_its_secrets() -> None:
    """References to secrets and all other values are as sent."""
    config = {
        "topics": "t",
        "iceberg.catalog.uri": "https://reader:hidden-1@catalog",
        "iceberg.catalog.s3.secret-access-key": "hidden-2",
        "iceberg.catalog.token": "${env:TOKEN}",
    }
    herder = FakeHerder(LogLevels(SystemClock()))
    herder.create("orders", config)
    with RestServer(
        create_app(herder.handlers, NodeInfo("http://n:1", "c"), LogLevels(SystemClock()))
    ) as server:
        path = "/icefloe/v1/connectors/{}/config"
        reply = server.send("GET", path.format("orders"), None, {})
        assert reply.json() == {
            **config,
            "iceberg.catalog.uri": f"https://reader:{MASK}@catalog",
            "iceberg.catalog.s3.secret-access-key": MASK,
        }
        assert server.send("GET", path.format("unknown"), None, {}).status == 404
