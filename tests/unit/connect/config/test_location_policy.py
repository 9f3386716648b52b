"""Where an operator lets connectors keep their tables."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from connect.config.invalid_config import InvalidConfigError
from connect.config.location_policy import EVERYWHERE, LocationPolicy, grant_of
from connect.validation.parse import parse
from tests.support.connector_json import GOOD
from tests.support.sources import modules, nodes

USERS = {"icefloe.rest.users.file": "users.yaml"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("orders", "own"), ("orders-eu", "long"), ("orders-us", "short"), ("other", "rest")],
)
def test_the_longest_matching_pattern_counts(name: str, expected: str) -> None:
    """The property with the connector's name precedes patterns, patterns precede the default."""
    node = {"p.orders": "own", "p.orders-*": "short", "p.orders-e*": "long", "p.default": "rest"}
    assert grant_of(name, "p.", node) == expected
    assert grant_of(name, "q.", node) is None


def test_only_a_star_matches_any_text() -> None:
    """Question marks and brackets are literal, as in grants of users."""
    assert grant_of("orders-1", "p.", {"p.orders-?": "x", "p.orders-[0-9]": "y"}) is None
    assert grant_of("orders-?", "p.", {"p.*-?": "x"}) == "x"


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/alice/t",
        "s3a://lake/alice",
        "s3n://lake/bob/../alice/t",
        "s3://lake//alice/t",
    ],
)
def test_locations_below_a_granted_location_are_allowed(location: str) -> None:
    """In any spelling."""
    assert LocationPolicy(granted=("s3://lake/alice",)).refusal(location) is None


@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/alice-2/t",
        "s3://lake/alice/../bob",
        "s3://other/alice/t",
        "gs://lake/alice/t",
        "file:///lake/alice/t",
        "/lake/alice/t",
        "s3://lake",
        "",
    ],
)
def test_other_locations_are_refused(location: str) -> None:
    """A location that only has the granted location as a text prefix is rejected."""
    why = LocationPolicy(granted=("s3://lake/alice",)).refusal(location)
    assert why is not None
    assert "icefloe.locations." in why


def test_links_in_local_folders_are_resolved(tmp_path: Path) -> None:
    """A link out of an allowed folder is refused, a link into it is allowed."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
    (allowed / "out").symlink_to(other)
    (other / "in").symlink_to(allowed)
    policy = LocationPolicy(local=(str(allowed),))
    for good in (f"file://{allowed}/t", f"file:{allowed}", f"{other}/in/t", f"{allowed}/x/../t"):
        assert policy.refusal(good) is None, good
    for bad in (f"file://{other}/t", f"{allowed}/out/t", f"{allowed}/../other", f"{allowed}2/t"):
        assert "icefloe.local.paths.allowed" in (policy.refusal(bad) or ""), bad
    assert policy.refusal("s3://anywhere/t") is None


@pytest.mark.parametrize("text", ["\0", "/data/\0", "/" + "x" * 5000])
def test_an_invalid_file_name_is_refused(text: str) -> None:
    """It is outside all folders."""
    assert LocationPolicy(local=("/data",)).refusal(text) is not None
    assert EVERYWHERE.refusal(text) is None


def test_a_node_with_users_allows_only_listed_local_folders() -> None:
    """Without users every folder is allowed."""
    assert LocationPolicy.of("c", {}) == EVERYWHERE
    assert LocationPolicy.of("c", USERS).refusal("/data/t") is not None
    listed = LocationPolicy.of("c", {**USERS, "icefloe.local.paths.allowed": "/data, /more"})
    assert listed.refusal("/data/t") is None
    assert listed.refusal("/more/t") is None
    assert listed.refusal("/etc") is not None


def test_executors_of_a_cluster_write_into_listed_local_folders_only() -> None:
    """Other machines do not see the folders of this one, unless all mount a folder."""
    cluster = {"spark.master": "spark://m:7077"}
    why = LocationPolicy.of("c", cluster).refusal("/data/t")
    assert why is not None
    assert "spark://m:7077" in why
    assert LocationPolicy.of("c", cluster).refusal("s3://lake/t") is None
    listed = {**cluster, "icefloe.local.paths.allowed": "/mnt/shared"}
    assert LocationPolicy.of("c", listed).refusal("/mnt/shared/t") is None
    assert LocationPolicy.of("c", listed).refusal("/data/t") is not None
    for master in ("local", "local[*]", "local[2]", " local[4,3] "):
        assert LocationPolicy.of("c", {"spark.master": master}) == EVERYWHERE
    placeholder = {"spark.master": "${env:MASTER}"}
    assert LocationPolicy.of("c", placeholder, lambda _: "yarn").refusal("/data/t") is not None
    assert LocationPolicy.of("c", placeholder, lambda _: "local[*]") == EVERYWHERE


SQL = {"iceberg.catalog.type": "sql", "iceberg.catalog.warehouse": "/data/wh"}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"iceberg.tables.default-location": "/etc/${table}"}, "iceberg.tables.default-location"),
        ({"iceberg.table.a.b.location": "file:///etc/t"}, "iceberg.table.a.b.location"),
        (
            {"iceberg.tables.auto-create-props.write.data.path": "/etc"},
            "iceberg.tables.auto-create-props.write.data.path",
        ),
        ({**SQL, "iceberg.catalog.uri": "sqlite:////etc/c.db"}, "iceberg.catalog.uri"),
        ({**SQL, "iceberg.catalog.uri": "jdbc:sqlite:/data/../etc/c.db"}, "iceberg.catalog.uri"),
        (
            {**SQL, "iceberg.catalog.uri": "sqlite:///file:/data/%2e%2e/etc/c.db?uri=true"},
            "iceberg.catalog.uri",
        ),
        (
            {
                **SQL,
                "iceberg.catalog.uri": "sqlite:////data/c.db",
                "iceberg.catalog.warehouse": "/",
            },
            "iceberg.catalog.warehouse",
        ),
    ],
)
def test_a_location_that_is_not_allowed_is_an_error_of_its_key(
    change: dict[str, str], key: str
) -> None:
    """The message does not contain the value."""
    node = {**USERS, "icefloe.local.paths.allowed": "/data", "icefloe.hosts.allowed": "*"}
    raw = {**GOOD, "iceberg.tables": "a.b", **change}
    with pytest.raises(InvalidConfigError) as refused:
        parse(raw, node=node)
    assert list(refused.value.errors) == [key]
    assert "/etc" not in refused.value.errors[key][0]
    parse(raw, node={})


def test_allowed_configurations_have_no_error() -> None:
    """Templates, placeholders and names of warehouses."""
    node = {**USERS, "icefloe.local.paths.allowed": "/data", "icefloe.hosts.allowed": "*"}
    good = {"iceberg.tables.default-location": "/data/${namespace}/${table}"}
    parse({**GOOD, **good, "iceberg.catalog.warehouse": "name"}, node=node)
    sql = {**SQL, "iceberg.catalog.uri": "sqlite:////data/c.db"}
    assert parse({**GOOD, **sql}, node=node).locations.local == ("/data",)


def test_every_client_of_a_connectors_catalog_gets_its_locations() -> None:
    """Also clients of operators' requests: a table's metadata may name any location."""
    calls = [
        (path.name, node.lineno, len(node.args))
        for path in modules("connect", "coordinator", "worker")
        if "embedded" not in path.parts
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "open_catalog"
    ]
    assert len(calls) > 8
    assert [call for call in calls if call[-1] < 3] == []
