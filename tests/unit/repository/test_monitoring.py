"""Alert rules and dashboards name only metrics and labels that a node exposes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from connect.metrics import metric_catalogue
from connect.node.metrics import connect_metrics

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "compose" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "dashboards" / "icefloe.json"
HOW_TO = ROOT / "docs" / "how-to" / "monitor.md"

OF_PROMETHEUS = {"up": ("job", "instance")}
SCRAPE_LABELS = ("job", "instance")
LABELS = {
    **{
        m.exposed_name: (*m.labels, *SCRAPE_LABELS)
        for m in metric_catalogue.CATALOGUE
        if m.kind != "histogram"
    },
    **{
        m.exposed_name + part: (*m.labels, *more, *SCRAPE_LABELS)
        for m in metric_catalogue.CATALOGUE
        if m.kind == "histogram"
        for part, more in (("_bucket", ("le",)), ("_sum", ()), ("_count", ()))
    },
    **{m.name: (*m.labels, *SCRAPE_LABELS) for m in connect_metrics.CATALOGUE},
    **OF_PROMETHEUS,
}
STATES = {"running", "paused", "stopped", "failed", "unassigned", "restarting"}


def rules() -> list[dict[str, Any]]:
    """Every alert rule."""
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard that has queries."""
    found = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Name and PromQL expression of every alert and panel."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def problems(expression: str) -> list[str]:
    """What an expression names and no node exposes."""
    found = []
    used = set()
    for name, matchers in re.findall(
        r"\b(up|icefloe_\w+|kafka_(?:connect|consumer)_\w+|jvm_\w+)\b(?:\{([^}]*)\})?", expression
    ):
        if name not in LABELS:
            found.append(f"no metric {name}")
            continue
        used |= set(LABELS[name])
        for label, value in re.findall(r'(\w+)\s*(?:=~|!=|!~|=)\s*"([^"]*)"', matchers):
            if label not in LABELS[name]:
                found.append(f"{name} has no label {label}")
            if label == "status" and value not in STATES:
                found.append(f"no state {value}")
    for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        found += [f"no label {label}" for label in re.split(r",\s*", group) if label not in used]
    return found if used else [*found, "no metric at all"]


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_an_expression_names_what_nodes_expose(name: str, expression: str) -> None:
    """Metrics, labels and states of every alert and panel exist."""
    assert not problems(expression), name


def test_an_unknown_metric_label_or_state_is_found() -> None:
    """The check above fails for a wrong name of each kind."""
    assert problems("rate(icefloe_record_read_total[1m])") == [
        "no metric icefloe_record_read_total",
        "no metric at all",
    ]
    assert problems('icefloe_tables_failed{table="a"}') == [
        "icefloe_tables_failed has no label table"
    ]
    assert problems("rate(icefloe_round_duration_seconds[1m])") == [
        "no metric icefloe_round_duration_seconds",
        "no metric at all",
    ]
    assert problems("sum by (task) (icefloe_tables_failed)") == ["no label task"]
    assert problems('kafka_connect_connector_status{status="broken"}') == ["no state broken"]


def test_alerts_say_what_to_do() -> None:
    """Every alert has a severity, a summary and a description, and the how-to page lists it."""
    page = HOW_TO.read_text()
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
        assert rule["annotations"]["description"].endswith("."), rule["alert"]
        assert f"`{rule['alert']}`" in page, rule["alert"]


def test_pages_named_in_alerts_exist() -> None:
    """An alert points only to pages of this repository that exist."""
    for rule in rules():
        for page in re.findall(r"docs/[\w/-]+\.md", rule["annotations"]["description"]):
            assert (ROOT / page).is_file(), f"{rule['alert']}: {page}"


def test_panels_explain_themselves_and_do_not_overlap() -> None:
    """Every panel has a description and a place of its own, and identities are unique."""
    occupied: set[tuple[int, int]] = set()
    found = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    for panel in found:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & occupied, panel["title"]
        occupied |= cells
        assert position["x"] + position["w"] <= 24, panel["title"]
    assert all(panel["description"] for panel in panels())
