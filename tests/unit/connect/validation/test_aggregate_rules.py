"""Validation of connectors that write aggregates."""

from __future__ import annotations

import pytest

from connect.config.invalid_config import InvalidConfigError
from connect.config.reserved_topics import output_topics
from connect.gateways.access_policy import AccessPolicy
from connect.validation.access_check import unreachable
from connect.validation.parse import parse
from connect.validation.plugins import BUILT_IN
from connect.validation.validate import TakenNames, validate
from tests.support.connector_json import GOOD, aggregate_config

OWN = "icefloe.aggregate."


def errors(change: dict[str, str], config: dict[str, str] | None = None) -> dict[str, str]:
    """Return the first error of each key of a connector of aggregates with a change."""
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    raw = {**config, **change} if config is not None else aggregate_config(change)
    found = validate(sink, raw, BUILT_IN, cluster=TakenNames("nodes")).configs
    return {info.name: info.errors[0] for info in found if info.errors}


def test_the_example_is_valid() -> None:
    """Keys of tables and of a catalog are not needed."""
    assert errors({}) == {}
    made = parse(aggregate_config()).aggregation
    assert made is not None
    assert (made.window_ms, made.slide_ms, made.group_by) == (600_000, 300_000, ("device",))
    assert made.used_columns == ("ts", "device", "amount")


def test_windows_tumble_without_a_slide() -> None:
    """The slide is then the length of the window."""
    made = parse(aggregate_config({OWN + "slide": "", OWN + "group-by": ""})).aggregation
    assert made is not None
    assert (made.slide_ms, made.group_by) == (made.window_ms, ())


@pytest.mark.parametrize(
    "key", ["location", "columns", "time-field", "window", "watermark", "functions", "topic"]
)
def test_required_keys(key: str) -> None:
    """Also for stored configurations, which are parsed and not validated."""
    assert "Missing required" in errors({OWN + key: ""})[OWN + key]
    with pytest.raises(InvalidConfigError):
        parse(aggregate_config({OWN + key: ""}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (OWN + "window", "10", "positive number with a unit"),
        (OWN + "window", "36501 days", "at most 36500 days"),
        (OWN + "watermark", "999999999 d", "at most 36500 days"),
        (OWN + "slide", "20 minutes", "is longer than"),
        (OWN + "slide", "100ms", "more than 1000 windows"),
        (OWN + "functions", "median(amount)", "is not a function"),
        (OWN + "functions", "sum(other)", "is not in icefloe.aggregate.columns"),
        (OWN + "functions", "sum(device)", "sum takes numbers"),
        (OWN + "functions", "max(list)", "functions take simple values"),
        (OWN + "functions", "device=count(*)", "a column of the result has this name"),
        (OWN + "functions", "window_start=count(*)", "a column of the result has this name"),
        (OWN + "group-by", "nothing", "is not in icefloe.aggregate.columns"),
        (OWN + "group-by", "list", "made of simple values"),
        (OWN + "group-by", "device,device", "listed twice"),
        (OWN + "time-field", "device", "its type is not TIMESTAMP"),
        (OWN + "time-field", "nothing", "is not in icefloe.aggregate.columns"),
        (OWN + "columns", "ts TIMESTAMP,", "a column is written as a name and a type"),
        (OWN + "topic", "signals", "the connector reads it"),
        (OWN + "topic", "control-iceberg", "it is the control topic"),
        (OWN + "topic", "a b", "a topic name must have"),
        (OWN + "emit", "sometimes", "emit"),
        (OWN + "interval-ms", "1", "at least 100"),
        (OWN + "windows", "1", "Unknown"),
        ("iceberg.tables", "db.t", "written to a topic, not to a table"),
        ("iceberg.tables.upsert-mode-enabled", "true", "written to a topic, not to a table"),
        ("iceberg.table.db.t.partition-by", "a", "written to a topic, not to a table"),
        ("iceberg.catalog.uri", "http://catalog", "have no catalog"),
        ("iceberg.maintenance.expire-snapshots.enabled", "true", "have no table"),
        ("iceberg.control.commit.interval-ms", "1000", "icefloe.aggregate.interval-ms"),
        ("icefloe.end", "latest", "has no end"),
        ("icefloe.outputs", "alerts", "icefloe.aggregate.topic"),
        ("icefloe.fail-on-data-loss", "false", "lost records would be missing"),
        ("errors.deadletterqueue.table", "db.t", "topic.name instead"),
    ],
)
def test_errors_name_the_key(key: str, value: str, message: str) -> None:
    """Each says what is wrong with a value, or what to do without a key."""
    assert message in errors({key: value})[key]


def test_a_pattern_of_topics_does_not_match_the_results() -> None:
    """The connector would read its own results."""
    found = errors({"topics": "", "topics.regex": "res.*"})
    assert "the connector reads it" in found[OWN + "topic"]


def test_the_dead_letter_topic_is_another_one() -> None:
    """Readers of results must not find dead letters."""
    found = errors({"errors.deadletterqueue.topic.name": "results", "errors.tolerance": "all"})
    assert "it is the dead letter topic" in found[OWN + "topic"]


def test_a_reserved_topic_is_refused() -> None:
    """Results would be read as events, configurations or states."""
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    cluster = TakenNames("nodes", topics=frozenset({"results"}))
    infos = validate(sink, aggregate_config(), BUILT_IN, cluster=cluster).configs
    (found,) = [info for info in infos if info.errors]
    assert (found.name, "set another topic" in found.errors[0]) == (OWN + "topic", True)


QUERIED = {
    "transforms": "q",
    "transforms.q.type": "icefloe.transforms.Sql",
    "transforms.q.columns": "at STRING, device STRING, cents BIGINT",
    "transforms.q.query": (
        "SELECT CAST(at AS TIMESTAMP) AS ts, device, cents / 100 AS amount FROM records"
    ),
}
"""A query before the aggregates."""
OF_QUERY = "transforms.q.query"


def test_a_query_before_aggregates_is_valid() -> None:
    """Event time, groups and inputs may be computed."""
    assert errors(QUERIED) == {}
    parse(aggregate_config(QUERIED))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT device FROM records", "no column ts, which icefloe.aggregate.time-field uses"),
        ("SELECT at AS ts, cents AS amount FROM records", "no column device"),
        ("SELECT at AS ts, device, cents AS Amount FROM records", "<expression> AS amount"),
        ("SELECT r.* FROM records r", "no column ts"),
        ("SELECT * FROM records", "no column ts"),
    ],
)
def test_a_query_has_the_columns_of_the_aggregates(query: str, message: str) -> None:
    """Otherwise each record would be refused, or counted without its value."""
    assert message in errors({**QUERIED, OF_QUERY: query})[OF_QUERY]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT CAST(ts AS TIMESTAMP), device, amount FROM records",
        "SELECT l.*, ts FROM records JOIN l ON l.device = records.device",
        "SELECT cents + 1, ts FROM records",
    ],
)
def test_names_that_only_spark_knows_are_checked_at_the_start(query: str) -> None:
    """The task reports a missing column."""
    table = {"transforms.q.table.l": "s3://lake/l"} if "JOIN" in query else {}
    columns = {"transforms.q.columns": "ts TIMESTAMP, device STRING, amount BIGINT, cents INT"}
    assert errors({**QUERIED, **columns, OF_QUERY: query, **table}) == {}


JOINED = {
    **QUERIED,
    OF_QUERY: "SELECT at AS ts, l.device, cents AS amount FROM records r JOIN l ON l.id = r.device",
}
TABLE = "transforms.q.table.l"
CATALOG = {"iceberg.catalog.type": "rest", "iceberg.catalog.uri": "http://catalog"}


def test_a_static_table_is_in_a_catalog_or_in_files() -> None:
    """Files need no catalog, and a catalog is for tables only."""
    assert errors({**JOINED, TABLE: "s3://lake/l"}) == {}
    assert "set iceberg.catalog.*" in errors({**JOINED, TABLE: "db.l"})[TABLE]
    assert errors({**JOINED, TABLE: "db.l", **CATALOG, "iceberg.catalog": "lake"}) == {}
    found = errors({**JOINED, TABLE: "s3://lake/l", **CATALOG, "iceberg.catalog": "lake"})
    assert set(found) == {*CATALOG, "iceberg.catalog"}


def test_the_store_of_the_state_gets_no_options_of_the_catalog() -> None:
    """A catalog may have credentials that the store must not see."""
    store = {"iceberg.catalog.s3.region": "eu-central-1"}
    own = {**CATALOG, "iceberg.catalog.credential": "id:secret", **store}
    config = parse(aggregate_config({**JOINED, TABLE: "db.l", **own}))
    assert config.has_catalog
    assert config.catalog_properties["type"] == "rest"
    assert config.state_properties == {
        "s3.region": "eu-central-1",
        "type": "aggregate",
        "aggregate.root": "/state",
    }
    assert not parse(aggregate_config(store)).has_catalog


def test_catalog_and_store_have_the_limits_of_the_node() -> None:
    """Tenants reach neither an address that is not allowed by one of them, nor by both."""
    policy = AccessPolicy(is_guarded=True, names=frozenset({"store"}), has_ambient=False)
    keys = {"iceberg.catalog.s3.access-key-id": "a", "iceberg.catalog.s3.secret-access-key": "b"}
    store = {OWN + "location": "s3://lake/state", "iceberg.catalog.s3.endpoint": "http://store"}
    raw = aggregate_config({**JOINED, TABLE: "db.l", **CATALOG, **store, **keys})
    assert [key for key, _ in unreachable(raw, policy)] == ["iceberg.catalog.uri"]
    other = {**raw, "iceberg.catalog.s3.endpoint": "http://other"}
    assert "iceberg.catalog.s3.endpoint" in dict(unreachable(other, policy))
    without = {k: v for k, v in other.items() if k not in CATALOG}
    assert [key for key, _ in unreachable(without, policy)] == ["iceberg.catalog.s3.endpoint"]


def test_keys_of_aggregates_need_the_format() -> None:
    """Nothing is ignored."""
    found = errors({OWN + "window": "1 h", OWN + "location": "/state"}, dict(GOOD))
    assert found[OWN + "window"] == f"{OWN}window needs icefloe.format=aggregate"
    assert found[OWN + "location"] == f"{OWN}location needs icefloe.format=aggregate"


@pytest.mark.parametrize(
    ("location", "is_valid"),
    [
        ("s3://lake/state", True),
        ("abfss://c@a.dfs.core.windows.net/s", True),
        ("gs://lake/state", True),
        ("/var/state", True),
        ("ftp://host/state", False),
        ("s3://lake/../state", False),
    ],
)
def test_locations(location: str, is_valid: bool) -> None:
    """Local folders and object stores."""
    found = errors({OWN + "location": location})
    assert (OWN + "location" not in found) is is_valid


USERS = {"bootstrap.servers": "b:1", "icefloe.rest.users.file": "/users.yaml"}


@pytest.mark.parametrize("topic", ["theirs", "${env:TOPIC}"])
def test_tenants_write_results_to_granted_topics_only(topic: str) -> None:
    """A placeholder would hide the name from the check."""
    node = {
        **USERS,
        "icefloe.output.topics.default": "ours-*",
        "icefloe.locations.default": "s3://lake",
    }
    raw = aggregate_config({OWN + "topic": topic, OWN + "location": "s3://lake/state"})
    with pytest.raises(InvalidConfigError) as caught:
        parse(raw, node=node, resolve=lambda text: text.replace("${env:TOPIC}", "theirs"))
    assert OWN + "topic" in caught.value.errors
    with pytest.raises(InvalidConfigError) as caught:
        parse({**raw, OWN + "topic": "ours-counts"}, node=USERS)
    assert OWN + "topic" in caught.value.errors, "without a grant there is none"
    granted = parse({**raw, OWN + "topic": "ours-counts"}, node=node).aggregation
    assert granted is not None
    assert granted.topic == "ours-counts"


def test_results_are_no_control_topic_of_other_connectors() -> None:
    """Output topics of existing connectors are known to the check."""
    configs = [aggregate_config({OWN + "topic": "counts"}), {"icefloe.outputs": ""}]
    assert output_topics(configs) == {"counts"}
