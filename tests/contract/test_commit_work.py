"""What one commit does, counted: the work that decides how many commits a process can make."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.gateways.catalog.catalog_clients import GuardedRest
from coordinator.commit.iceberg.committer import Committer
from coordinator.commit.metadata.avro_files import _encoded_manifest
from coordinator.kernel.effects import TableCommitted
from tests.support.counted_calls import ALL, counted_calls
from tests.support.fakes.rest_catalog import MemoryCatalogServer
from tests.support.sql_statements import statements_of
from tests.support.stack import S3Server, unique_name
from tests.support.table_harness import SCHEMA, Racing, TableHarness
from tests.support.table_histories import with_history
from tests.support.tables import announced, reference, table_commit

KINDS = ("rest", "sql")
CALLS_MAX = 8_000  # of which 6,000 are made
REQUEST = "Session.send"
WRITTEN = "GuardedFileIO.new_output"
OPENED = "PyArrowFile.open"
ANSWER_PARSED = "RestCatalog.commit_table"
SUMMARY_MADE = "Summary.__init__"  # one for each snapshot
REPEATED = (
    "get_environ_proxies",
    "read_manifest_list",
    "deepcopy",
    "BaseModel.__deepcopy__",
    "Schema.__init__",
    "PartitionSpec.__init__",
    ANSWER_PARSED,
)


@pytest.fixture
def memory_catalog(tmp_path: Path) -> Iterator[MemoryCatalogServer]:
    """A REST catalog without a latency."""
    server = MemoryCatalogServer(f"file://{tmp_path}/warehouse")
    server.start()
    yield server
    server.close()


@pytest.fixture(params=KINDS)
def gateway(request: pytest.FixtureRequest) -> Iterator[CatalogGateway]:
    """A gateway to each kind of catalog."""
    name = "memory_catalog" if request.param == "rest" else "sql_catalog_properties"
    given = request.getfixturevalue(name)
    opened = open_catalog("iceberg", given.properties if request.param == "rest" else given)
    yield opened
    opened.close()


def commit(committer: Committer, harness: TableHarness, offset: int) -> Counter[str]:
    """Commit two new files; return the calls by name."""
    files = announced(reference(harness.table), harness.files(2), offset=offset)
    round_commit = table_commit([files])
    with counted_calls() as calls:
        outcome = committer.commit(round_commit)
    assert isinstance(outcome, TableCommitted), outcome
    assert outcome.snapshot_id is not None
    return calls


def encoded_manifests() -> int:
    """How many manifests were encoded for lists, in this process."""
    return _encoded_manifest.cache_info().misses


def known_table(gateway: CatalogGateway, name: str = "t") -> tuple[TableHarness, Committer]:
    """A table with three commits of a coordinator."""
    harness = TableHarness(gateway, gateway.create(("db", name), SCHEMA))
    committer = harness.committer()
    for offset in range(3):
        commit(committer, harness, offset)
    return harness, committer


def table_known_for_long(gateway: CatalogGateway) -> tuple[TableHarness, Committer]:
    """A table that the coordinator knows since more than a minute, and commits to alone."""
    harness, committer = known_table(gateway)
    committer._memories[harness.table.name()].held_files.own.since_ms = 0
    commit(committer, harness, 3)
    return harness, committer


def test_a_commit_of_a_known_table(gateway: CatalogGateway) -> None:
    """In the first minute, and when the coordinator knows that it is alone."""
    harness, committer = known_table(gateway)
    is_rest = isinstance(gateway._client(), GuardedRest)
    requests = 2 if is_rest else 0
    files = 2 if is_rest else 3  # a manifest, the list, and the metadata of a SQL catalog
    for offset in range(3, 6):
        calls = commit(committer, harness, offset)
        assert (calls[REQUEST], calls[WRITTEN]) == (requests, files)
        assert {name: calls[name] for name in REPEATED if calls[name]} == {}
        assert calls[ALL] <= CALLS_MAX
        committer._memories[harness.table.name()].held_files.own.since_ms = 0


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_manifest_is_encoded_once_for_the_lists_that_name_it(
    sql_catalog_properties: dict[str, str], version: str
) -> None:
    """A list names all manifests of the table; only the new one is encoded for it."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    table = gateway.create(("db", "t"), SCHEMA, properties={"format-version": version})
    harness = TableHarness(gateway, table)
    committer = harness.committer()
    for offset in range(5):
        before = encoded_manifests()
        commit(committer, harness, offset)
        assert encoded_manifests() - before == 1
    snapshot = harness.reloaded().current_snapshot()
    assert snapshot is not None
    numbers = [m.sequence_number for m in snapshot.manifests(harness.table.io)]
    assert numbers == [5, 4, 3, 2, 1]
    gateway.close()


def test_a_metadata_file_is_read_once_for_a_commit(sql_catalog_properties: dict[str, str]) -> None:
    """For the load. After another writer's commit the commit's own load reads the new file."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    harness, committer = known_table(gateway)
    assert commit(committer, harness, 3)[OPENED] == 1
    other = TableHarness(gateway, harness.table, "d")
    racing: Any = Racing(gateway, [lambda: commit(other.committer(), other, 0)])
    committer._catalog = racing
    assert isinstance(committer.commit(harness.round(4)), TableCommitted)
    assert len(harness.reloaded().metadata.snapshots) == 6
    gateway.close()


def test_a_sql_catalog_is_asked_once_and_changed_once(
    sql_catalog_properties: dict[str, str],
) -> None:
    """The commit changes the row of the load, or nothing."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    harness, committer = table_known_for_long(gateway)
    client = gateway._client()
    assert statements_of(client, lambda: commit(committer, harness, 4)) == ["SELECT", "UPDATE"]
    gateway.close()


def test_a_conflict_leaves_no_metadata_file(sql_catalog_properties: dict[str, str]) -> None:
    """Another writer commits between load and commit; the commit is repeated on its result."""
    gateway = open_catalog("iceberg", sql_catalog_properties)
    harness, committer = table_known_for_long(gateway)
    other = TableHarness(open_catalog("iceberg", sql_catalog_properties), harness.table, "d")
    racing: Any = Racing(gateway, [lambda: commit(other.committer(), other, 0)])
    committer._catalog = racing
    statements = statements_of(gateway._client(), lambda: committer.commit(harness.round(4)))
    assert statements[:3] == ["SELECT", "UPDATE", "SELECT"]
    assert statements.count("UPDATE") == 2
    table = harness.reloaded()
    assert len(table.metadata.snapshots) == 6
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    named = {Path(entry.metadata_file).name for entry in table.metadata.metadata_log}
    named.add(Path(table.metadata_location).name)
    assert {file.name for file in folder.glob("*.metadata.json")} == named
    gateway.close()


def test_snapshots_are_made_for_branches_and_tags_only(
    memory_catalog: MemoryCatalogServer,
) -> None:
    """A commit to a table with 300 snapshots makes as many objects as one to a table with 5.

    This catalog answers with all snapshots to any request.
    """
    made = {}
    gateway = open_catalog("iceberg", memory_catalog.properties)
    for snapshots in (5, 300):
        harness, committer = known_table(gateway, f"t{snapshots}")
        committer._memories[harness.table.name()].held_files.own.since_ms = 0
        key = ("db", f"t{snapshots}")
        metadata = memory_catalog.catalog.tables[key]
        first = metadata.snapshots[0]
        old = [first.model_copy(update={"snapshot_id": n}) for n in range(1, snapshots)]
        all_of_them = {"snapshots": [*old, *metadata.snapshots]}
        memory_catalog.catalog.tables[key] = metadata.model_copy(update=all_of_them)
        calls = commit(committer, harness, 3)
        made[snapshots] = calls[SUMMARY_MADE], calls[ANSWER_PARSED]
    assert made[5] == made[300]
    assert made[5][0] > 0
    gateway.close()


@pytest.fixture
def glue_properties(s3_server: S3Server, tmp_path: Path) -> dict[str, str]:
    """A Glue catalog, whose client reads and writes metadata files in a store."""
    keys = {"access-key-id": "x", "secret-access-key": "x", "region": "us-east-1"}
    own = {f"glue.{key}": text for key, text in keys.items()}
    warehouse = f"{s3_server.warehouse}/{tmp_path.name}"
    place = {"type": "glue", "warehouse": warehouse, "glue.endpoint": s3_server.endpoint}
    return {**s3_server.properties, **own, **place}


@pytest.mark.parametrize(
    ("kind", "snapshots_max"),
    [("sql", 2_000), pytest.param("glue", 500, marks=pytest.mark.matrix)],
)
def test_a_commit_does_not_follow_the_history(
    request: pytest.FixtureRequest, kind: str, snapshots_max: int
) -> None:
    """10 snapshots or 2,000: as many calls, as many objects, as many bytes that are parsed.

    Bytes are copied from one metadata file to the next, and that is all.
    """
    name = "sql_catalog_properties" if kind == "sql" else "glue_properties"
    gateway = open_catalog("iceberg", request.getfixturevalue(name))
    client: Any = gateway._client()
    client._files.text_bytes_max = 0  # a short file is as a long one
    parsed_bytes = []
    original = client._files.read
    client._files.read = lambda *given: _noted(parsed_bytes, original(*given))
    made: dict[int, tuple[Counter[str], list[int]]] = {}
    for snapshots in (10, snapshots_max):
        table_name = unique_name(f"t{snapshots}")
        harness = TableHarness(gateway, gateway.create(("db", table_name), SCHEMA))
        commit(harness.committer(), harness, 0)
        with_history(gateway, harness.table, snapshots)
        committer = harness.committer()
        for offset in range(1, 4):
            commit(committer, harness, offset)
            held = committer._memories[harness.table.name()].held_files
            held.own.since_ms = held._foreign_ms = 0  # long ago
        parsed_bytes.clear()
        gc.collect()  # clients of other tests are not closed while calls are counted
        made[snapshots] = commit(committer, harness, 4), list(parsed_bytes)
        whole = harness.reloaded().metadata
        assert len(whole.snapshots) == len(whole.snapshot_log) == snapshots + 4
    (few, few_bytes), (many, many_bytes) = made[10], made[snapshots_max]
    for function in (SUMMARY_MADE, OPENED, "find_history", *REPEATED):
        assert few[function] == many[function]
    assert few["find_history"] == 0
    assert few[SUMMARY_MADE] > 0
    assert abs(few[ALL] - many[ALL]) <= 100  # of 6,000; pieces of a megabyte, and digits
    assert len(few_bytes) == len(many_bytes) > 0
    assert abs(sum(few_bytes) - sum(many_bytes)) <= 200  # digits
    gateway.close()


def _noted(sizes: list[int], text: bytes) -> bytes:
    sizes.append(len(text))
    return text
