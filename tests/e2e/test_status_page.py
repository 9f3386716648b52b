"""The status page over the whole product: rows that arrive are seen arriving."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browsing import BrowserVisit, running_browser
from tests.support.running_stack import RunningStack
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_the_page_shows_the_progress_of_a_connector(running: RunningStack) -> None:
    """Last commit of the table, a bar per round, valid-through time, lag 0 in the end."""
    with running_browser() as browser:
        name, topic = unique_name("page"), running.topic("page")
        table = f"pages.{name}"
        running.table(table)
        running.produce(topic, *({"id": n, "name": "a"} for n in range(5)))
        running.create(name, running.connector(topics=topic, iceberg__tables=table))
        running.rows(table, 5, name)
        seen = BrowserVisit(browser)
        seen.page.goto(f"{running.stack.rest_url}/ui#/connectors/{name}")
        detail = seen.page.locator("#detail")
        row = detail.get_by_role("row").filter(has_text=table)
        expect(row).to_contain_text("committed")
        snapshot = running.catalog.load_table(table).current_snapshot()
        assert snapshot is not None
        expect(row).to_contain_text(str(snapshot.snapshot_id))
        running.produce(topic, *({"id": n, "name": "b"} for n in range(5, 12)))
        running.rows(table, 12, name)
        latest = running.catalog.load_table(table).current_snapshot()
        assert latest is not None
        expect(row).to_contain_text(str(latest.snapshot_id))
        expect(detail.locator("svg rect.done").first).to_be_visible()
        measurements = detail.locator(".figures > div")
        for text in ("Not yet in files0records", "In files, not yet committed0records"):
            expect(measurements.filter(has_text=text)).to_have_count(1)
        expect(measurements.filter(has_text="Valid-through age")).to_contain_text("UTC")
        assert not seen.complaints
        running.wait_until(
            lambda: (
                (counts := running.counts(name))["kafka_connect_sink_task_sink_record_send"] == 12
                and counts["kafka_connect_connector_task_offset_commit_max_time_ms"] > 0
            ),
            lambda: "the records and the commit to be counted",
        )
        counts = running.counts(name)
        assert counts["kafka_connect_sink_task_partition_count"] == 1
        assert counts["kafka_connect_sink_task_put_batch_max_time_ms"] > 0
        assert counts["kafka_connect_task_error_total_record_errors"] == 0
        seen.close()
    running.delete(name)
