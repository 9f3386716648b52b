"""Every example is a connector that Icefloe takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connect.embedded.demo import TABLES, demo_connector
from connect.validation.parse import parse

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.json"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_accepted(path: Path) -> None:
    """It parses without an error, and its file is called like the connector."""
    content = json.loads(path.read_text())
    assert content["name"] == path.stem
    assert parse({"name": content["name"], **content["config"]}).name == path.stem


def test_demo_runs_the_example_that_people_see() -> None:
    """The demo's connector is the one in ``examples``; its tables are those that are checked."""
    connector = demo_connector()
    assert connector == json.loads(
        next(path for path in EXAMPLES if path.stem == "payments-fanout").read_text()
    )
    config = parse({"name": connector["name"], **connector["config"]})
    assert set(config.tables) == set(TABLES.values())
    assert config.route_field == "kind"
