"""Lineage events of a real connector and its real table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from connect.model.lineage_event import table_dataset
from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def events_of(running: RunningStack, connector: str) -> list[dict[str, Any]]:
    """The events of a connector so far."""
    file = running.lineage
    assert file is not None
    lines = file.read_text().rpartition("\n")[0].splitlines() if file.exists() else []
    found = [json.loads(line) for line in lines]
    return [event for event in found if event["job"]["name"] == connector]


def test_a_run_is_described_from_its_start_to_its_end(running: RunningStack) -> None:
    """Topic and table by their names, all rows once, columns, the snapshot; and no secret."""
    name, topic = unique_name("drawn"), running.topic("drawn")
    table = f"lineage.{unique_name('t').replace('-', '_')}"
    running.table(table)
    running.produce(topic, *numbered(0, 10))
    running.create(name, running.connector(topics=topic, iceberg__tables=table))
    running.rows(table, 10, name)

    def rows_sent() -> int:
        outputs = [o for event in events_of(running, name) for o in event["outputs"]]
        found = (o["outputFacets"].get("outputStatistics", {}) for o in outputs)
        return sum(facet.get("rowCount", 0) for facet in found)

    running.wait_until(lambda: rows_sent() == 10, lambda: "the lineage events of the rows")
    running.delete(name)
    running.wait_until(
        lambda: events_of(running, name)[-1]["eventType"] == "COMPLETE", lambda: "the last event"
    )
    events = events_of(running, name)
    assert events[0]["eventType"] == "START"
    assert len({event["run"]["runId"] for event in events}) == 1
    assert rows_sent() == 10
    assert {i["name"] for event in events for i in event["inputs"]} == {topic}
    read = [i["inputFacets"].get("inputStatistics", {}) for e in events for i in e["inputs"]]
    assert sum(facet.get("rowCount", 0) for facet in read) == 10

    present = running.catalog.load_table(table)
    with_rows = [o for e in events for o in e["outputs"] if o["outputFacets"]]
    output = with_rows[-1]
    assert (output["namespace"], output["name"]) == table_dataset(present.location())
    columns = [(c["name"], c["type"]) for c in output["facets"]["schema"]["fields"]]
    assert columns == [("id", "long"), ("name", "string")]
    assert output["facets"]["columnLineage"]["fields"].keys() == {"id", "name"}
    snapshots = {str(snapshot.snapshot_id) for snapshot in present.snapshots()}
    assert output["outputFacets"]["icefloe_commit"]["snapshotId"] in snapshots
    sizes = [o["outputFacets"]["outputStatistics"]["size"] for o in with_rows]
    assert sum(sizes) == sum(f["file_size_in_bytes"] for f in present.inspect.files().to_pylist())
    assert "canary-" not in json.dumps(events)
