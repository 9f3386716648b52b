"""The validate answer beyond what is recorded: secrets, policies, our own keys."""

from __future__ import annotations

import json

import pytest

from connect.config import version_range
from connect.errors import ConfigError
from connect.validation.client_policy import ClientPolicy
from connect.validation.plugins import BUILT_IN
from connect.validation.validate import TakenNames, Validation, validate

SINK = BUILT_IN.connector("IcebergSink")
GOOD: dict[str, str | None] = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}

DEBEZIUM = "io.debezium"
SMT = "org.apache.kafka.connect.transforms"


def answer(change: dict[str, str | None], **options: object) -> Validation:
    """The validate answer to a good configuration with a change."""
    assert SINK is not None
    return validate(SINK, {**GOOD, **change}, BUILT_IN, **options)  # type: ignore[arg-type]  # options of one test each


def test_a_good_configuration_has_no_error() -> None:
    """Every declared key has its entry, with a definition."""
    found = answer({})
    assert found.errors == ()
    assert all(info.definition for info in found.configs)
    names = [info.name for info in found.configs]
    assert names[0] == "name"
    assert "icefloe.drain.records" in names
    assert len(names) == len(set(names))


def test_definitions_are_complete_json() -> None:
    """With order and order_in_group, and defaults as text."""
    body = json.loads(json.dumps(answer({}).to_json()))
    entry = next(c for c in body["configs"] if c["definition"]["name"] == "tasks.max")
    assert entry["definition"]["order"] == entry["definition"]["order_in_group"] == 4
    assert entry["definition"]["default_value"] == "1"
    assert entry["value"]["value"] == "1"


def test_a_resolved_secret_is_not_returned() -> None:
    """The resolved value is checked; neither answer nor error contains it."""
    sent = {"tasks.max": "${env:S}", "errors.tolerance": "${env:S}", "topics": "a,${env:S}"}
    change: dict[str, str | None] = {**sent, "errors.deadletterqueue.topic.name": "${env:S}"}
    found = answer(change, resolve=lambda text: text.replace("${env:S}", "hunter2"))
    assert len(found.errors) >= 4
    assert "hunter2" not in json.dumps(found.to_json())
    displayed = {info.name: info.value for info in found.configs}
    assert displayed["tasks.max"] is None  # not of its type
    assert displayed["topics"] == "a,${env:S}"


def test_an_unresolvable_placeholder_is_an_error_at_its_key() -> None:
    """Other keys are still checked."""

    def resolve(text: str) -> str:
        if "${" in text:
            raise ConfigError("cannot be resolved")
        return text

    found = answer({"iceberg.catalog.token": "${env:X}", "tasks.max": "0"}, resolve=resolve)
    wrong = {info.name for info in found.configs if info.errors}
    assert wrong == {"iceberg.catalog.token", "tasks.max"}


def test_the_group_of_the_nodes_is_refused() -> None:
    """As override, as the connector's key and as default name."""
    keys = ("consumer.override.group.id", "iceberg.connect.group-id", "iceberg.control.group-id")
    for key in keys:
        assert "Consumer group g conflicts" in answer({key: "g"}, cluster=TakenNames("g")).errors[0]
    assert answer({}, cluster=TakenNames("connect-orders")).errors


def test_the_policy_none_refuses_all_overrides() -> None:
    """The policy None rejects all overrides."""
    change: dict[str, str | None] = {"consumer.override.max.poll.records": "5"}
    assert answer(change).errors == ()
    (sentence,) = answer(change, policy=ClientPolicy(name="None")).errors
    assert sentence.startswith("The 'None' policy does not allow 'max.poll.records'")


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"type": "example.Nope"}, "Class example.Nope could not be found."),
        ({"type": f"{SMT}.Cast", "spec": "x"}, f"Did you mean {SMT}.Cast$Key, {SMT}.Cast$Value?"),
        ({"type": f"{SMT}.Cast$Value", "spec": "a:int128"}, "No enum constant"),
        ({"type": f"{SMT}.HoistField$Value"}, 'configuration "transforms.a.field"'),
        ({"type": f"{SMT}.Filter", "negate": "true"}, "'transforms.a.negate' was provided"),
        ({"type": f"{SMT}.Filter", "predicate": "p"}, "predicates does not list it"),
        ({"type": f"{SMT}.predicates.RecordIsTombstone"}, "Transformation interface"),
        (
            {
                "type": f"{DEBEZIUM}.transforms.ExtractNewRecordState",
                "delete.tombstone.handling.mode": "none",
            },
            "String must be one of (case insensitive): DROP, TOMBSTONE, REWRITE",
        ),
        (
            {"type": "ExtractNewRecordState", "add.fields": "op:a:b"},
            "Unexpected field name: op:a:b",
        ),
        ({"type": f"{DEBEZIUM}.transforms.TimezoneConverter"}, "Use it in the source connector."),
        ({"type": f"{DEBEZIUM}.transforms.HeaderToValues"}, "Did you mean"),
    ],
)
def test_transformations_are_checked(keys: dict[str, str], sentence: str) -> None:
    """Errors are at their keys before the connector is created."""
    change: dict[str, str | None] = {f"transforms.a.{name}": value for name, value in keys.items()}
    found = answer({"transforms": "a", **change}).errors
    assert len(found) == 1
    assert sentence in found[0]


def test_a_good_transformation_has_no_errors() -> None:
    """The predicate's and the transformation's own keys are declared and accepted."""
    change: dict[str, str | None] = {
        "transforms": "a",
        "transforms.a.type": f"{SMT}.Filter",
        "transforms.a.predicate": "p",
        "predicates": "p",
        "predicates.p.type": f"{SMT}.predicates.HasHeaderKey",
        "predicates.p.name": "kind",
    }
    assert answer(change).errors == ()


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ("1.2.0", True),
        ("latest", True),
        ("[1.0,2.0)", True),
        ("(1.2.0,2)", False),
        ("[1.2.0]", True),
        ("(,1.0]", False),
        ("1.1", False),
    ],
)
def test_versions_are_matched(wanted: str, *, fits: bool) -> None:
    """Exact versions, latest, ranges with open ends."""
    assert (version_range.mismatch("x.Y", wanted, "1.2.0") is None) is fits


def test_a_malformed_version_is_an_error() -> None:
    """An invalid version is an error of its own."""
    with pytest.raises(ConfigError, match="Unbounded range"):
        version_range.mismatch("x.Y", "[[", "1.2.0")
