"""The status page in a real browser, at a real node whose children are stubs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, expect

from connect.clock import SystemClock
from connect.config.connector import MaintenanceConfig
from connect.node.node_requests import NodeInfo, ReportedStatus
from connect.node.rest.app import create_app
from connect.node.rest.log_levels import LogLevels
from connect.redaction.secret_values import MASK
from tests.support.browsing import BrowserVisit
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer
from tests.support.running_node import RunningNode
from tests.support.stack import Topics

pytestmark = pytest.mark.kafka

MORE = 6
HOSTILE = "<img src=x onerror=document.title='hacked'>"
TRACE = "\n".join(
    [
        "data_lost: orders-3 [1200..5600]: removed <b>by</b> retention before they were read",
        "",
        "topic=orders <script>document.title='hacked'</script>",
        *(f'  File "worker/task/task.py", line {n}, in step_{n}' for n in range(200)),
    ]
)
SNAPSHOT_ID = 7_731_118_480_903_038_059
VALID_THROUGH_S = 1_700_000_000


MAINTENANCE_LIMITS = {
    "event": "maintenance_limits",
    "limits": {
        **asdict(MaintenanceConfig(min_input_files=2, min_delete_files=10)),
        "tables": ["kept.a"],
    },
}
MAINTENANCE_DUE = {"event": "maintenance_due", "table": "kept.a", "work": {"small-files": 1234}}
MAINTAINED = [
    {
        "event": "maintenance",
        "table": "kept.b",
        "work": "delete-files",
        "state": "DONE",
        "rewritten_files": 5678,
        "removed_delete_files": 7,
        "duration_ms": 9,
    },
    {
        "event": "maintenance",
        "table": "kept.c",
        "work": "manifests",
        "state": "FAILED",
        "code": "maintenance_conflict",
        "message": "<b>changed</b> by others",
        "duration_ms": 9,
    },
]


def _round(number: int, **more: Any) -> dict[str, Any]:
    done = {"table": "db.a", "snapshot_id": SNAPSHOT_ID, "files": 1, "records": 5, "duration_ms": 9}
    bad = {"table": "db.b", "code": "commit_conflict", "message": "<i>changed</i> by others"}
    return {
        "event": "round",
        "commit_id": f"00000000-0000-0000-0000-{number:012}",
        "partial": False,
        "valid_through_us": VALID_THROUGH_S * 1_000_000,
        "duration_ms": 100 * number,
        "records": 5,
        "topics": [],
        "tables": [done, bad] if number == 3 else [done],
        **more,
    }


def _measurements(connector: str) -> dict[str, Any]:
    task = {"connector": connector, "task": "0"}
    own = {"connector": connector}
    return {
        "event": "metrics",
        "samples": [
            ["lag_records", task, 1234],
            ["records_dead_lettered", task, 7],
            ["records_uncommitted", own, 40],
            ["valid_through_timestamp_seconds", own, VALID_THROUGH_S],
        ],
    }


def _fail(node: RunningNode, unit: str, **reported: Any) -> None:
    (node.folder / f"fail-{unit}").write_text(json.dumps({"retriable": False, **reported}))


@pytest.fixture(scope="module")
def node(
    browser: Browser,
    kafka_properties: dict[str, str],
    topics: Topics,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningNode]:
    """A node without users; its connector ``orders`` has rounds, figures and a failed task."""
    del browser  # where there is none, nothing is started
    node = RunningNode(
        tmp_path_factory.mktemp("page"),
        kafka_properties["bootstrap.servers"],
        # stubs send no heartbeats
        **{"icefloe.child.silence.max.ms": "3600000"},
    )
    reported = [*(_round(n, partial=n == 5) for n in range(1, 9)), _measurements("orders")]
    events = node.folder / "events-coordinator.json"
    events.write_text(json.dumps([*reported, MAINTENANCE_LIMITS, MAINTENANCE_DUE]))
    (node.folder / "events-maintenance.json").write_text(json.dumps(MAINTAINED))
    _fail(node, "orders-1", code="data_lost", trace=TRACE)
    node.start()
    topic = topics.create("page", partitions=2)
    more = {"iceberg.maintenance.rewrite-data-files.enabled": "true"}
    node.put("orders", topic, icefloe_tasks_per_worker="2", tasks_max="2", **more)
    node.wait_until(lambda: node.status("orders") == ("RUNNING", ["RUNNING", "FAILED"]))
    node.wait_until(lambda: node.commands("maintenance", "orders"))
    events.write_text(json.dumps(reported))  # the node maintains one connector at a time
    for name in (HOSTILE, *(f"more-{n:02}" for n in range(MORE))):
        assert node.put(name, topic).status_code == 201
    node.wait_until(lambda: node.status(f"more-{MORE - 1:02}") == ("RUNNING", ["RUNNING"]))
    yield node
    node.close()


def _row(visit: BrowserVisit, name: str) -> Any:
    link = visit.page.get_by_role("link", name=name, exact=True)
    return visit.page.locator("#connectors tr").filter(has=link)


def test_the_list_shows_failed_connectors_first(
    node: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """States, tasks, both lags, age of the valid-through time, dead letters, and the cause."""
    seen = visit(f"{node.url}/ui")
    rows = seen.page.locator("#connectors tr")
    expect(rows).to_have_count(MORE + 2)
    first = rows.first
    for text in ("orders", "running", "1 of 2 failed", "1,234", "40", "7"):
        expect(first).to_contain_text(text)
    expect(first.locator(".reason")).to_have_text(TRACE.split("\n", maxsplit=1)[0])
    expect(first.get_by_role("cell").nth(4)).to_have_text(re.compile(r"\d+ d \d+ h"))
    expect(_row(seen, "more-05").get_by_role("cell").nth(2)).to_have_text(
        "\N{EN DASH}"
    )  # no status received
    expect(seen.page.locator("#nodes tbody tr")).to_contain_text("leader")
    expect(seen.page.locator("#nodes tbody tr")).to_contain_text("coordinator, worker")
    seen.page.get_by_role("searchbox").fill("more-05")
    expect(rows).to_have_count(1)
    assert not seen.complaints


def test_a_connector_is_shown_in_detail(
    node: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """Tasks with traces, tables with their last commit, rounds as a chart and as a table."""
    seen = visit(f"{node.url}/ui")
    seen.page.get_by_role("link", name="orders", exact=True).click()
    detail = seen.page.locator("#detail")
    expect(detail.get_by_role("heading", name="orders")).to_be_focused()
    task = detail.get_by_role("row").filter(has=seen.page.get_by_label("Restart task 1"))
    expect(task.locator("pre")).not_to_be_visible()
    task.get_by_text("data_lost").first.click()
    expect(task.locator("pre")).to_have_text(TRACE)
    tables = {
        "db.a": f"committed snapshot {SNAPSHOT_ID}",  # no digit of it is lost
        "db.b": "failed commit_conflict: <i>changed</i> by others",
    }
    for table, text in tables.items():
        row = detail.get_by_role("row").filter(has=seen.page.get_by_role("rowheader", name=table))
        expect(row).to_contain_text(re.compile(re.escape(text).replace(r"\ ", r"\s*")))
    chart = detail.get_by_role("img")
    expect(chart).to_have_accessible_name(
        "The last 8 rounds: the longest took 800 ms, 1 had a failed table, 1 ended by timeout."
    )
    expect(chart.locator("rect.failed")).to_have_count(2)
    expect(chart.locator("path.cross")).to_have_count(1)
    expect(chart.locator("title").nth(2)).to_contain_text("db.b: commit_conflict")
    detail.get_by_text("The rounds as a table").click()
    expect(detail.get_by_role("row").filter(has_text="db.b: commit_conflict")).to_be_visible()
    assert not seen.complaints


def test_maintenance_is_shown_and_stopped(
    node: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """What runs, what was done last for each table, with which result; the command line agrees."""
    seen = visit(f"{node.url}/ui#/connectors/orders")
    detail = seen.page.locator("#detail")
    state = detail.locator(".heading .state")
    expect(state).to_have_text("running")
    today = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}")
    done = "5,678 data files rewritten, 7 delete files removed"
    failed = "maintenance_conflict: <b>changed</b> by others"
    for place, (table, work, last, ended, due, result) in enumerate(
        [
            ("kept.c", "manifests", "failed", today, "\N{EN DASH}", failed),
            ("kept.a", "small-files", "running", "\N{EN DASH}", "1,234", "\N{EN DASH}"),
            ("kept.b", "delete-files", "done", today, "\N{EN DASH}", done),
        ]
    ):
        row = detail.get_by_role("row").filter(has_text="kept.").nth(place)
        expect(row.get_by_role("rowheader")).to_have_text(table)
        for cell, text in enumerate((work, last, ended, due, result)):
            expect(row.get_by_role("cell").nth(cell)).to_have_text(text)
    status, output = node.icefloe("status", "orders")
    assert status == 1, "a task has failed"
    lines = [line.split() for line in output.splitlines() if "kept." in line]
    assert [line[1:4] for line in lines] == [
        ["kept.a", "small-files", "RUNNING"],
        ["kept.b", "delete-files", "DONE"],
        ["kept.c", "manifests", "FAILED"],
    ]
    assert "5678 data files rewritten, 7 delete files removed" in output
    assert node.icefloe("status", "more-01")[1].count("\n") == 2, "it has no maintenance"
    detail.get_by_role("button", name="Stop maintenance").click()
    seen.page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(state).to_have_text("stopped")
    row = detail.get_by_role("row").filter(has_text="kept.a")
    expect(row).to_contain_text("maintenance_stopped: an operator stopped it")
    detail.get_by_role("button", name="Run maintenance now").click()
    expect(state).to_have_text("running")
    assert not seen.complaints


def test_foreign_text_is_not_interpreted_as_html(
    node: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """Markup in names, traces and messages is shown as text; the policy would stop it."""
    seen = visit(f"{node.url}/ui")
    seen.page.get_by_role("link", name=HOSTILE, exact=True).click()
    expect(seen.page.locator("#detail h2")).to_have_text(HOSTILE)
    expect(seen.page.locator("#detail tbody .state").first).to_have_text("running")
    seen.page.goto(f"{node.url}/ui#/connectors/orders")
    expect(seen.page.locator("#detail pre").nth(2)).to_have_text(TRACE)
    assert seen.page.locator("main img, main script, main b, main i").count() == 0
    assert seen.page.title() == "(1 failed) Icefloe"
    assert not seen.complaints
    with pytest.raises(Error, match="TrustedHTML"):
        seen.page.evaluate("() => { document.body.innerHTML = '<b>x</b>'; }")


def test_buttons_send_requests_and_show_the_answer(
    node: RunningNode, visit: Callable[..., BrowserVisit]
) -> None:
    """Pause asks for confirmation; resume and restart reach the node."""
    name = "more-03"
    seen = visit(f"{node.url}/ui#/connectors/{name}")
    detail, output = seen.page.locator("#detail"), seen.page.get_by_role("status")
    dialog = seen.page.get_by_role("dialog")
    pause = detail.get_by_role("button", name="Pause")
    pause.click()
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).not_to_be_visible()
    pause.click()
    expect(dialog).to_contain_text(f"Pause {name}?")
    dialog.get_by_role("button", name="Pause").click()
    expect(detail.locator(".title .state")).to_have_text("paused")
    expect(output).to_have_text(f"Pausing {name}: accepted.")
    assert node.status(name)[0] == "PAUSED"
    assert seen.asked.count(f"PUT /connectors/{name}/pause") == 1
    detail.get_by_role("button", name="Resume").click()
    expect(detail.locator(".title .state")).to_have_text("running")
    starts = len(node.commands("worker", name))
    detail.get_by_label("Restart task 0").click()
    node.wait_until(lambda: len(node.commands("worker", name)) > starts)
    detail.get_by_role("button", name="Restart all").click()
    dialog.get_by_role("button", name="Restart").click()
    expect(output).to_have_text(f"Restarting all of {name}: accepted.")
    node.call("DELETE", f"/connectors/{name}")
    expect(output).to_contain_text("There is no connector more-03")
    expect(detail).not_to_be_visible()
    assert not [c for c in seen.complaints if "404" not in c]
    node.put(name, node.call("GET", "/connectors/more-04/config").json()["topics"])


def test_the_number_of_requests_does_not_depend_on_the_connectors(browser: Browser) -> None:
    """Two hundred connectors for a minute: an overview each 5 s, details of the selected one."""
    levels = LogLevels(SystemClock())
    herder = FakeHerder(levels)
    for number in range(200):
        herder.create(f"c{number:03}", {"topics": "t"})
    app = create_app(herder.handlers, NodeInfo("http://127.0.0.1:1", "cluster"), levels)
    with RestServer(app) as server:
        seen = BrowserVisit(browser)
        seen.page.clock.install()
        seen.page.goto(f"http://127.0.0.1:{server.port}/ui#/connectors/c007")
        seconds = 0
        own = "GET /icefloe/v1/connectors/c007"
        each = {"GET /icefloe/v1/overview": 5, f"{own}/rounds": 5, "GET /connectors/c007/status": 5}
        rarely = {
            f"{own}/maintenance": 10,
            f"{own}/lag": 10,
            f"{own}/config": 60,
            f"{own}/dead-letters": 60,
            "GET /icefloe/v1/cluster": 30,
        }
        expected = {**each, **rarely}
        while seconds < 60 or min(map(seen.asked.count, expected)) < 1:
            seen.page.clock.run_for(1000)
            seconds += 1
        expect(seen.page.locator("#connectors tr")).to_have_count(200)
        seen.close()
    of_connectors = [request for request in seen.asked if "/connectors/" in request]
    assert all("/connectors/c007/" in request for request in of_connectors)
    for request, every_s in expected.items():
        assert 1 <= seen.asked.count(request) <= 1 + seconds / every_s, request


class PartlyAnsweringHerder(FakeHerder):
    """Half of the connectors run on a node that does not answer."""

    def nodes(self) -> Mapping[str, str | None]:
        """Return this node, and a node that does not answer."""
        return {**super().nodes(), "gone:1": "http://127.0.0.1:1"}

    def status(self, name: str) -> ReportedStatus:
        """Return the status; connectors named ``far-…`` run on the remote node."""
        found = super().status(name)
        if not name.startswith("far-"):
            return found
        tasks = tuple(replace(task, worker_id="gone:1") for task in found.tasks)
        return replace(found, worker_id="gone:1", tasks=tasks)


def test_a_node_with_missing_metrics_is_named(browser: Browser) -> None:
    """Its values are dashes, and sums are marked as partial."""
    levels = LogLevels(SystemClock())
    herder = PartlyAnsweringHerder(levels)
    for name in ("far-one", "near-one"):
        herder.create(name, {"topics": "t"})
    app = create_app(herder.handlers, NodeInfo("http://127.0.0.1:1", "cluster"), levels)
    with RestServer(app) as server:
        seen = BrowserVisit(browser)
        seen.page.goto(f"http://127.0.0.1:{server.port}/ui")
        expect(seen.page.get_by_role("alert")).to_contain_text("No figures from gone:1 (")
        expect(seen.page.locator("#summary")).to_contain_text("\N{GREATER-THAN OR EQUAL TO} 60")
        for name, text in (("far-one", "\N{EN DASH}"), ("near-one", "60")):
            expect(_row(seen, name).get_by_role("cell").nth(2)).to_have_text(text)
        assert not seen.complaints
        seen.close()


class CatalogDown(FakeHerder):
    """The only task of ``broken`` has failed; others have read more records each time."""

    read = 0

    def status(self, name: str) -> ReportedStatus:
        """Return the status; Kafka Connect says RUNNING also if all tasks have failed."""
        found = super().status(name)
        if name != "broken":
            return found
        trace = "RetriableError (catalog_unavailable): the catalog does not answer\n\n..."
        tasks = tuple(replace(task, state="FAILED", trace=trace) for task in found.tasks)
        return replace(found, tasks=tasks)

    def sums(self, metrics: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Return a lag of 0 for the failed task, as it was before the first measurement."""
        self.read += 1_000
        received = {"lag_records": 0.0, "records_read": float(self.read)}
        return {name: received for name in self.names() if metrics}


def test_a_connector_whose_tasks_have_failed_is_red_with_what_to_do(browser: Browser) -> None:
    """Its lag is a dash. Configuration without secrets, rates, and the next command are shown."""
    levels = LogLevels(SystemClock())
    herder = CatalogDown(levels)
    login = {"iceberg.catalog.s3.secret-access-key": "hidden-1", "icefloe.x.password": "${env:P}"}
    for name in ("broken", "fine-1", "fine-2"):
        herder.create(name, {"topics": "t", **login})
    with RestServer(
        create_app(herder.handlers, NodeInfo("http://127.0.0.1:1", "c"), levels)
    ) as server:
        seen = BrowserVisit(browser)
        seen.page.goto(f"http://127.0.0.1:{server.port}/ui")
        summary, detail = seen.page.locator("#summary"), seen.page.locator("#detail")
        expect(summary.locator("div").first).to_contain_text("2 running, 1 failed")
        row = _row(seen, "broken")
        expect(row.locator(".state")).to_have_class("state bad")
        expect(row.get_by_role("cell").nth(2)).to_have_text("\N{EN DASH}")
        expect(_row(seen, "fine-1").get_by_role("cell").nth(2)).to_have_text("0")
        row.get_by_role("link").click()
        expect(detail.locator(".title .state")).to_have_text("failed")
        figures = detail.locator(".figures div")
        expect(figures.filter(has_text="Not yet in files").locator(".figure")).to_have_text(
            "\N{EN DASH}"
        )
        expect(figures.filter(has_text="Records read")).to_contain_text(re.compile(r"\d,000"))
        expect(figures.filter(has_text="Records/s").locator(".figure")).to_have_text(
            re.compile(r"\d+")
        )
        expect(summary).to_contain_text(re.compile(r"Records/s[\d,]+"))
        expect(detail.locator(".next")).to_contain_text(
            "icefloe restart broken --include-tasks --only-failed"
        )
        detail.get_by_text("Configuration", exact=True).click()
        for key, value in (
            ("iceberg.catalog.s3.secret-access-key", MASK),
            ("icefloe.x.password", "${env:P}"),
            ("topics", "t"),
        ):
            of_key = detail.get_by_role("row").filter(has_text=key)
            expect(of_key.get_by_role("cell")).to_have_text(value)
        assert "hidden-1" not in seen.page.content()
        with seen.page.expect_popup() as opened:
            detail.get_by_role("link", name="What to do").locator("visible=true").click()
        expect(opened.value.locator("tr:has(:target)")).to_contain_text(
            "The catalog does not answer"
        )
        seen.page.goto(f"http://127.0.0.1:{server.port}/ui#/connectors/fine-1")
        expect(detail.locator(".next")).to_contain_text("icefloe describe fine-1")
        assert not seen.complaints
        seen.close()


@pytest.mark.parametrize("scheme", ["dark", pytest.param("light", marks=pytest.mark.matrix)])
def test_the_page_is_readable_in_light_dark_and_narrow(
    node: RunningNode, visit: Callable[..., BrowserVisit], scheme: str
) -> None:
    """The contrast of every text is at least 4.5; a phone needs no horizontal scrolling."""
    size = {"width": 380, "height": 800}
    seen = visit(f"{node.url}/ui#/connectors/orders", color_scheme=scheme, viewport=size)
    expect(seen.page.locator("#detail pre").nth(2)).to_have_text(TRACE)
    expect(seen.page.locator("#list")).not_to_be_visible()
    width = "document.documentElement.scrollWidth"
    assert seen.page.evaluate(width) <= size["width"]
    seen.page.set_viewport_size({"width": 1400, "height": 900})
    expect(seen.page.locator("#list")).to_be_visible()
    poor = seen.page.evaluate(Path(__file__).with_name("contrast.js").read_text())
    assert poor["texts"] > 100
    assert poor["poor"] == []
