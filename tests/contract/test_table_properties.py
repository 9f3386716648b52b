"""Table properties of any value, on the coordinator: a table's owner cannot stop a commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from coordinator.kernel.effects import TableCommitted, TableFailed
from tests.support.property_values import DECIDING, NASTY, TUNING, VALUES
from tests.support.table_harness import MIRROR, SCHEMA, TableHarness, paths_of

OURS = (
    MIRROR,
    "icefloe.topic-id.control-iceberg.connect-c",
    "icefloe.valid-through.control-iceberg.connect-c",
)
SUMMARIES = (
    "kafka.connect.offsets.control-iceberg.connect-c",
    "kafka.connect.valid-through-ts",
    "kafka.connect.vtts",
    "total-records",
    "total-data-files",
    "operation",
)


@pytest.fixture
def catalog(sql_catalog_properties: dict[str, str]) -> Iterator[CatalogGateway]:
    """SQLite and a local folder."""
    opened = open_catalog("iceberg", sql_catalog_properties)
    yield opened
    opened.close()


def _made(catalog: CatalogGateway) -> TableHarness:
    harness = TableHarness(catalog, catalog.create(("db", f"t{uuid4().hex}"), SCHEMA))
    assert isinstance(harness.committer().commit(harness.round(0)), TableCommitted)
    return harness


def _metadata(harness: TableHarness) -> Path:
    return Path(harness.reloaded().metadata_location.removeprefix("file://"))


FUZZ = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("value", NASTY)
def test_any_value_of_all_tuning_properties_is_accepted(
    catalog: CatalogGateway, value: str
) -> None:
    """Each property that tunes files has the same value, as bad as it gets."""
    harness = _made(catalog)
    path = _metadata(harness)
    metadata = json.loads(path.read_text())
    metadata["properties"] |= dict.fromkeys(TUNING, value)
    metadata["snapshots"][-1]["summary"] |= {"total-records": value, "total-data-files": value}
    path.write_text(json.dumps(metadata))
    outcome = harness.committer().commit(harness.round(5))
    assert isinstance(outcome, TableCommitted), outcome


@FUZZ
@given(given=st.dictionaries(st.sampled_from(TUNING), VALUES, min_size=1, max_size=4))
def test_tuning_properties_never_stop_a_commit(
    catalog: CatalogGateway, given: dict[str, str]
) -> None:
    """An invalid value has no effect."""
    harness = _made(catalog)
    path = _metadata(harness)
    metadata = json.loads(path.read_text())
    metadata["properties"] |= given
    path.write_text(json.dumps(metadata))
    outcome = harness.committer().commit(harness.round(5))
    assert isinstance(outcome, TableCommitted), outcome
    assert len(paths_of(harness.reloaded())) == 2


@FUZZ
@given(
    properties=st.dictionaries(st.sampled_from((*DECIDING, *OURS)), VALUES, max_size=3),
    summary=st.dictionaries(st.sampled_from(SUMMARIES), VALUES, max_size=3),
)
def test_any_other_property_value_has_an_outcome(
    catalog: CatalogGateway, properties: dict[str, str], summary: dict[str, str]
) -> None:
    """Locations, offsets and claims of any text: an outcome with a code, never an exception."""
    harness = _made(catalog)
    path = _metadata(harness)
    metadata = json.loads(path.read_text())
    metadata["properties"] |= properties
    metadata["snapshots"][-1]["summary"] |= summary
    path.write_text(json.dumps(metadata))
    outcome = harness.committer().commit(harness.round(5))
    if isinstance(outcome, TableFailed):
        assert outcome.code
        assert len(outcome.message) < 1_500


@FUZZ
@given(
    at=st.sampled_from(
        (
            "refs",
            "snapshots",
            "schemas",
            "partition-specs",
            "location",
            "snapshot-log",
            "metadata-log",
            "last-sequence-number",
            "current-schema-id",
            "default-spec-id",
            "last-updated-ms",
            "table-uuid",
            "format-version",
            "sort-orders",
            "properties",
        )
    ),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
        ),
        max_leaves=6,
    ),
)
def test_any_metadata_has_an_outcome(catalog: CatalogGateway, at: str, value: object) -> None:
    """With any value in the metadata, the commit returns an outcome for the table."""
    harness = _made(catalog)
    path = _metadata(harness)
    metadata = json.loads(path.read_text())
    metadata[at] = value
    commit = harness.round(5)
    path.write_text(json.dumps(metadata))
    outcome = harness.committer().commit(commit)
    if isinstance(outcome, TableFailed):
        assert outcome.code
