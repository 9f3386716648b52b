"""Fixtures of tests of the parts against real brokers and catalogs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.coordinator_bench import Bench
from tests.stack import Topics


@pytest.fixture
def bench(
    kafka_properties: dict[str, str],
    topics: Topics,
    sql_catalog_properties: dict[str, str],
) -> Iterator[Bench]:
    """A connector with a control topic and a table of its own."""
    control = topics.create("control")
    source = topics.create("source")
    made = Bench(kafka_properties, control, source, sql_catalog_properties)
    yield made
    made.hand.close()
    made.reader.close()
    made.catalog.close()
